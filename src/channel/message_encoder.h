// From encoded parts to a message: frames of about 1 MiB of payload, cut between chunks.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/buffer_pool.h"
#include "base/memory_meter.h"
#include "channel/feedback.h"
#include "channel/residual_store.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"

namespace deltawire {

// A frame is closed before the chunk that would take it past this; 3LC at 280 times smaller puts 75 million
// elements into one frame, fp32 a quarter of a million.
inline constexpr std::uint64_t kFramePayloadTarget = std::uint64_t{1} << 20;

// Elements of the raw parts that one segment holds, at most: those of a chunk of theirs.
inline constexpr std::uint64_t kPackElements = 65536;

// One part as a codec left it. The spans point into the message.
struct SentPart {
  std::uint64_t name_hash = 0;
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint32_t index = 0;  // in the message's list of parts
  const Codec* codec = nullptr;
  bool is_raw = false;                         // below the policy's min_elements
  std::uint8_t frame_version = kFrameVersion;  // that it needs: `codec` may be one for 16-bit tensors
  Feedback feedback;
  SegmentState state = SegmentState::kCoded;
  PartView encoded;                          // empty unless coded
  std::span<const std::uint32_t> sums;       // of its chunks, if its codec has made them
  bool is_lent = false;                      // its values go without a message: all sums are 0
  ResidualStore::Entry* residual = nullptr;  // null without error feedback

  // Whether what is not sent stays in a residual.
  bool keeps() const noexcept {
    return residual != nullptr && (codec->info().error_feedback || feedback.changes_input());
  }
};

// A message and all its memory.
struct Message {
  BufferPool::Buffer payload;
  std::vector<std::uint32_t> chunk_ends;
  std::vector<std::uint32_t> chunk_sums;
  std::vector<std::byte> heads;  // of its frames, one after another
  std::vector<Bytes> pieces;
  bool is_needed = true;  // by the channel, until the step ends
  bool is_released = false;
  MeteredBytes held;  // but the payload, which its pool counts

  void count() noexcept {
    held.set(sizeof(std::uint32_t) * (chunk_ends.capacity() + chunk_sums.capacity()) + heads.capacity());
  }

  // Memory for a part of these sizes, behind parts of `before`.
  PartBuffer buffer_behind(const Sizes& before, const Sizes& sizes) noexcept {
    return {payload.bytes().subspan(before.payload_bytes, sizes.payload_bytes),
            std::span(chunk_ends).subspan(before.chunks, sizes.chunks),
            std::span(chunk_sums).subspan(before.chunks, sizes.chunks)};
  }
};

// The entries that a message's lists have at most.
struct MessageLists {
  std::uint64_t chunks = 0;
  std::uint64_t head_bytes = 0;
  std::uint64_t pieces = 0;
};

// Of a message with so many bytes of payload in so many chunks of so many parts.
MessageLists lists_of(std::uint64_t payload_bytes, std::uint64_t chunks, std::uint64_t parts) noexcept;

// The messages of a step. The next step's are made in their memory.
class StepMessages {
 public:
  explicit StepMessages(std::shared_ptr<MemoryMeter> meter) : meter_(std::move(meter)) {}

  // An empty one with room for such lists, and for longer ones that were asked for before: messages come in
  // another order in each step. Spans into the others stay.
  Message& add(const MessageLists& lists);

  // Gives the payload of the message with these pieces back, unless it is needed.
  void release(std::span<const Bytes> pieces) noexcept;

  // Ends the step: gives the payloads back, and keeps the lists of as many messages as there were.
  void end_step() noexcept;

  // Takes no memory, as a moved deque does.
  void swap(StepMessages& other) noexcept;

 private:
  std::shared_ptr<MemoryMeter> meter_;
  MessageLists longest_;
  std::deque<Message> all_;
  std::size_t used_ = 0;
  std::size_t first_unreleased_ = 0;  // those before it are
};

// Builds heads and pieces from the parts, raw ones in runs, whose payloads follow each other in
// message.payload.
void frame_message(std::span<const SentPart> parts, FrameHeader header, Message& message);

}  // namespace deltawire
