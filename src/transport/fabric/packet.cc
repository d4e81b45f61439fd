#include "transport/fabric/packet.h"

#include "base/crc32c.h"
#include "base/little_endian.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kPacketMagic = 0x50445744;  // "DWDP" on the wire
constexpr std::size_t kPacketCrcAt = 4;
constexpr std::size_t kPacketKindAt = 8;
constexpr std::size_t kPayloadAt = 12;
constexpr std::size_t kUsedAt = 16;

}  // namespace

void encode_packet_header(const PacketHeader& header,
                          std::span<std::byte, kPacketHeaderBytes> packet) noexcept {
  std::byte* const at = packet.data();
  store_le(at, kPacketMagic);
  store_le(at + kPacketKindAt, static_cast<std::uint32_t>(header.kind));
  store_le(at + kPayloadAt, header.payload_bytes);
  for (std::size_t lane = 0; lane < kLanes; ++lane) store_le(at + kUsedAt + 4 * lane, header.used[lane]);
  store_le(at + kPacketCrcAt, crc32c(packet.subspan(kPacketKindAt)));
}

std::optional<PacketHeader> decode_packet_header(Bytes packet) noexcept {
  if (packet.size() < kPacketHeaderBytes) return std::nullopt;
  const Bytes bytes = packet.first(kPacketHeaderBytes);
  const std::byte* const at = bytes.data();
  if (load_le<std::uint32_t>(at) != kPacketMagic) return std::nullopt;
  if (load_le<std::uint32_t>(at + kPacketCrcAt) != crc32c(bytes.subspan(kPacketKindAt))) return std::nullopt;
  const auto kind = load_le<std::uint32_t>(at + kPacketKindAt);
  const bool known = kind >= static_cast<std::uint32_t>(PacketHeader::Kind::kHandshake) &&
                     kind <= static_cast<std::uint32_t>(PacketHeader::Kind::kTaken);
  if (!known) return std::nullopt;
  PacketHeader header;
  header.kind = static_cast<PacketHeader::Kind>(kind);
  header.payload_bytes = load_le<std::uint32_t>(at + kPayloadAt);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    header.used[lane] = load_le<std::uint32_t>(at + kUsedAt + 4 * lane);
  }
  if (header.payload_bytes > packet.size() - kPacketHeaderBytes) return std::nullopt;
  return header;
}

}  // namespace deltawire
