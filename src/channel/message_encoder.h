// From encoded parts to a message: frames of about 1 MiB of payload, cut between chunks.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/memory_meter.h"
#include "channel/residual_store.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"

namespace deltawire {

// A frame is closed before the chunk that would take it past this; 3LC at 280 times smaller puts 75 million
// elements into one frame, fp32 a quarter of a million.
inline constexpr std::uint64_t kFramePayloadTarget = std::uint64_t{1} << 20;

// One part as a codec left it. The spans point into the message.
struct SentPart {
  std::uint64_t name_hash = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint32_t index = 0;  // in the message's list of parts
  const Codec* codec = nullptr;
  SegmentState state = SegmentState::kCoded;
  PartView encoded;                          // empty unless coded
  ResidualStore::Entry* residual = nullptr;  // null without error feedback
};

// A message and all its memory.
struct Message {
  std::unique_ptr<std::byte[]> payload;
  std::uint64_t payload_capacity = 0;
  std::vector<std::uint32_t> chunk_ends;
  std::vector<std::vector<std::byte>> heads;
  std::vector<Bytes> pieces;
  MeteredBytes held;

  void count() noexcept;
};

// Upper bound of the bytes that framing adds to `payload_bytes` in `chunks` chunks of `parts` parts.
std::uint64_t framing_bound(std::uint64_t payload_bytes, std::uint64_t chunks, std::uint64_t parts) noexcept;

// Builds heads and pieces from the parts, whose payloads follow each other in message.payload.
void frame_message(std::span<const SentPart> parts, FrameHeader header, Message& message);

}  // namespace deltawire
