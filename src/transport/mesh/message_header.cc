#include "transport/mesh/message_header.h"

#include "base/crc32c.h"
#include "base/errors.h"
#include "base/little_endian.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kMessageMagic = 0x4D445744;  // "DWDM" on the wire
constexpr std::size_t kHeaderCrcAt = 4;
constexpr std::size_t kTagAt = 8;
constexpr std::size_t kLengthAt = 16;
constexpr std::size_t kZeroAt = 24;

std::uint32_t checksum(std::span<const std::byte, kMessageHeaderBytes> bytes) noexcept {
  return crc32c(bytes.subspan<kTagAt>(), crc32c(bytes.first<kHeaderCrcAt>()));
}

}  // namespace

MessageHeaderBytes encode_message_header(const MessageHeader& header) noexcept {
  MessageHeaderBytes bytes;
  store_le(bytes.data(), kMessageMagic);
  store_le(bytes.data() + kTagAt, header.tag);
  store_le(bytes.data() + kLengthAt, header.length);
  store_le(bytes.data() + kZeroAt, std::uint64_t{0});
  store_le(bytes.data() + kHeaderCrcAt, checksum(bytes));
  return bytes;
}

Result<MessageHeader> decode_message_header(std::span<const std::byte, kMessageHeaderBytes> bytes, int sender,
                                            const RankNames& names) {
  const auto from = [&] { return " in the data stream from " + names.of(sender); };
  if (load_le<std::uint32_t>(bytes.data()) != kMessageMagic ||
      load_le<std::uint32_t>(bytes.data() + kHeaderCrcAt) != checksum(bytes) ||
      load_le<std::uint64_t>(bytes.data() + kZeroAt) != 0) {
    return corrupt("message header is damaged" + from() + "; check the network and that rank's machine",
                   sender);
  }
  const MessageHeader header{load_le<Tag>(bytes.data() + kTagAt),
                             load_le<std::uint64_t>(bytes.data() + kLengthAt)};
  if (header.length > kMessageBytesMax) {
    return corrupt("message length " + std::to_string(header.length) + from() + " is above the limit of " +
                       std::to_string(kMessageBytesMax) + " bytes",
                   sender);
  }
  return header;
}

}  // namespace deltawire
