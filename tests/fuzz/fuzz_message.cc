// A whole message on its way into a channel, its header checksum repaired so that the fuzzer gets past it.
// The first byte chooses the codec.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "fuzz_inputs.h"

namespace deltawire {
namespace {

using Message = std::vector<std::byte>;

// Codec, hashes, step, ranks and slice of a message that the receiver expects: else the first comparison
// would end every run.
void repair_identity(std::byte* frame, const Message& wanted) {
  std::memcpy(frame, wanted.data(), 8);
  std::memcpy(frame + 16, wanted.data() + 16, 28);
  std::memcpy(frame + 48, wanted.data() + 48, 6);
}

void repair_checksums(std::byte* frame, std::uint64_t bytes) {
  const std::uint64_t header = load_le<std::uint32_t>(frame + 8);
  if (header < kFrameHeaderBytes || header > bytes) return;
  const Bytes all(frame, bytes);
  const std::uint64_t segments = load_le<std::uint16_t>(frame + 54);
  const std::uint64_t chunks = load_le<std::uint32_t>(frame + 56);
  const std::uint64_t index = kFrameHeaderBytes + kSegmentBytes * segments;
  if (index <= header && kChunkEntryBytes * chunks <= header - index) {
    std::uint64_t begin = header;
    for (std::uint64_t i = 0; i < chunks; ++i) {
      std::byte* entry = frame + index + kChunkEntryBytes * i;
      const std::uint64_t end = header + (load_le<std::uint32_t>(entry) & 0x7FFFFFFFu);
      if (end < begin || end > bytes) break;
      store_le<std::uint32_t>(entry + 4,
                              crc32c(all.subspan(begin, end - begin), static_cast<std::uint32_t>(i)));
      begin = end;
    }
  }
  store_le<std::uint32_t>(
      frame + 60, crc32c(all.subspan(kFrameHeaderBytes, header - kFrameHeaderBytes), crc32c(all.first(60))));
}

// Frame after frame, as far as their lengths say where the next one begins.
void repair(Message& message, const Message& wanted) {
  for (std::uint64_t at = 0; message.size() - at >= kFrameHeaderBytes;) {
    repair_identity(message.data() + at, wanted);
    repair_checksums(message.data() + at, message.size() - at);
    const std::uint64_t frame_bytes = load_le<std::uint32_t>(message.data() + at + 12);
    if (frame_bytes < kFrameHeaderBytes || frame_bytes > message.size() - at) return;
    at += frame_bytes;
  }
}

// One for each codec, with a message that it expects.
struct Receiver {
  std::unique_ptr<Channel> channel;
  Message wanted;
  bool has_accepted = false;
};

Receiver make_receiver(std::string_view spec) {
  auto made = make_channel(spec, ChannelOptions{fuzz::kMessagePolicy, Revert::kFold});
  if (!made) std::abort();
  Receiver receiver{std::move(*made), {}};
  fuzz::Tensors tensors;
  const auto pieces = receiver.channel->encode(tensors.named(), MessageId{});
  if (!pieces) std::abort();
  for (const Bytes piece : *pieces) {
    receiver.wanted.insert(receiver.wanted.end(), piece.begin(), piece.end());
  }
  receiver.channel->commit();
  return receiver;
}

std::vector<Receiver>& receivers() {
  static std::vector<Receiver> receivers = [] {
    std::vector<Receiver> all;
    for (const std::string& spec : fuzz::codec_specs()) all.push_back(make_receiver(spec));
    return all;
  }();
  return receivers;
}

void decode(std::uint8_t selector, Bytes data) {
  Receiver& receiver = receivers()[fuzz::choice(selector, receivers())];
  Message message(data.begin(), data.end());
  repair(message, receiver.wanted);
  fuzz::Tensors tensors;
  const auto parts = tensors.named();
  const Status dense = receiver.channel->decode(message, parts, MessageId{}, Into::kAccumulate, 1.0F);
  std::vector<Pairs> means(parts.size());
  const Status pairs = receiver.channel->decode_pairs(message, parts, MessageId{}, 1.0F, means);
  receiver.has_accepted = receiver.has_accepted || dense.has_value();
  // Lists of keys and values can't say that a part is not finite, and end there.
  const bool is_not_finite = !pairs && pairs.error().code == ErrorCode::kNotFinite;
  if (!is_not_finite && dense.has_value() != pairs.has_value()) std::abort();
  auto reader = FrameReader::open(message);
  if (!reader) return;
  while (reader->segments_left() > 0) {
    if (!reader->next()) return;
  }
}

}  // namespace
}  // namespace deltawire

extern "C" void fuzz_after_seeds() {
  for (const auto& receiver : deltawire::receivers()) {
    if (!receiver.has_accepted) std::abort();
  }
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) deltawire::decode(data[0], std::as_bytes(std::span(data + 1, size - 1)));
  return 0;
}
