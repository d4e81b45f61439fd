// A whole message on its way into a channel, its header checksum repaired so that the fuzzer gets past it.
// The first byte chooses the codec.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "frame_repair.h"
#include "fuzz_inputs.h"

namespace deltawire {
namespace {

using Message = std::vector<std::byte>;

// Flags, hashes, step, ranks, bucket and stage of a message that the receiver expects: else the first
// comparison would end every run.
void repair_identity(std::byte* frame, const Message& wanted) {
  std::memcpy(frame, wanted.data(), 6);
  std::memcpy(frame + 20, wanted.data() + 20, fuzz::kHeader - 20);
}

void repair(Message& message, const Message& wanted) {
  fuzz::repair_frames(message, [&](std::byte* frame) { repair_identity(frame, wanted); });
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
  fuzz::ManyTensors tensors;
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
  fuzz::ManyTensors tensors;
  const auto parts = tensors.named();
  const Status dense = receiver.channel->decode(message, parts, MessageId{}, Into::kAccumulate, 1.0F);
  std::vector<Pairs> means(parts.size());
  const Status pairs = receiver.channel->decode_pairs(message, parts, MessageId{}, 1.0F, means);
  receiver.has_accepted = receiver.has_accepted || dense.has_value();
  // Lists of keys and values can't say that a part is not finite, and end there.
  const bool is_not_finite = !pairs && pairs.error().code == ErrorCode::kNotFinite;
  if (!is_not_finite && dense.has_value() != pairs.has_value()) {
    std::fprintf(stderr, "%s: values %s, pairs %s\n", receiver.channel->spec().c_str(),
                 dense ? "decoded" : dense.error().message.c_str(),
                 pairs ? "decoded" : pairs.error().message.c_str());
    std::abort();
  }
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
    if (receiver.has_accepted) continue;
    std::fprintf(stderr, "no seed was accepted by %s\n", receiver.channel->spec().c_str());
    std::abort();
  }
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 0) deltawire::decode(data[0], std::as_bytes(std::span(data + 1, size - 1)));
  return 0;
}
