// From encoded parts to a message: frames of about 1 MiB of payload, cut between chunks.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/buffer_pool.h"
#include "channel/feedback.h"
#include "channel/residual_store.h"
#include "deltawire/channel.h"
#include "deltawire/frame.h"
#include "wire/frame_builder.h"

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

// Cuts encoded parts into segments and frames.

inline constexpr std::uint32_t kMaxFrameSegments = 65535;

// Chunks of one part that follow each other.
struct ChunkRun {
  std::uint64_t first = 0;  // elements of the part before them
  std::uint64_t count = 0;  // theirs
  std::span<const std::uint32_t> ends;
  std::span<const std::uint32_t> sums;  // empty: not known yet
  Bytes payload;                        // theirs in one piece; empty: each is one of `chunks`, with a sum
  std::span<const Bytes> chunks;
};

// `Frames` has `heads()`, to which the open frame's head is appended, and is told of payloads and heads:
// add(payload), for all of a frame, then close(head), after which heads() may be cleared.
template <class Frames>
class Framer {
 public:
  Framer(const FrameHeader& header, Frames& frames)
      : header_(header), frames_(frames), builder_(header, frames.heads()) {}

  // Raw parts are packed.
  void add_all(std::span<const SentPart> parts) {
    while (!parts.empty()) {
      const std::span<const SentPart> run = run_of(parts);
      run.size() > 1 ? add_packed(run) : add(run.front());
      parts = parts.subspan(run.size());
    }
  }

  // Adds the chunks of a part, as segments that are as long as frames allow, but keeps back those that could
  // be in one with chunks that come later, if `more` do. Returns how many it added.
  std::size_t add_chunks(const SentPart& part, const ChunkRun& run, bool more) {
    const std::uint64_t chunk_elements = part.codec->info().chunk_elements;
    std::size_t begin = 0;
    while (begin < run.ends.size()) {
      if (builder_.segment_count() == kMaxFrameSegments) next_frame();
      const std::size_t end = chunk_elements == 0 ? run.ends.size() : chunks_that_fit(run, begin);
      const bool is_last = end == run.ends.size();
      const std::uint64_t bytes = run.ends[end - 1] - start_of(run.ends, begin);
      // A full frame takes no more, whatever comes.
      if (is_last && more && builder_.payload_bytes() + bytes < kFramePayloadTarget) break;
      add_range(part, run, begin, end);
      begin = end;
      if (!is_last || more) next_frame();
    }
    return begin;
  }

  void finish() { close_frame(); }

 private:
  static bool can_be_packed(const SentPart& part) noexcept {
    return part.is_raw && part.state == SegmentState::kCoded && part.encoded.chunk_ends.size() == 1;
  }

  // As many parts from the first on as one segment holds: raw ones, coded alike.
  static std::span<const SentPart> run_of(std::span<const SentPart> parts) noexcept {
    std::uint64_t elements = 0;
    std::size_t count = 0;
    while (count < parts.size() && can_be_packed(parts[count]) && parts[count].codec == parts[0].codec &&
           elements + parts[count].count <= kPackElements) {
      elements += parts[count++].count;
    }
    return parts.first(std::max<std::size_t>(count, 1));
  }

  static std::uint32_t start_of(std::span<const std::uint32_t> ends, std::size_t chunk) noexcept {
    return chunk == 0 ? 0 : ends[chunk - 1];
  }

  void add(const SentPart& part) {
    if (part.state != SegmentState::kCoded) return add_bare(part);
    add_chunks(part, {0, part.count, part.encoded.chunk_ends, part.sums, part.encoded.payload, {}}, false);
  }

  // Parts whose bytes follow each other, as one segment with one chunk.
  void add_packed(std::span<const SentPart> run) {
    std::uint32_t count = 0;
    std::uint32_t bytes = 0;
    for (const SentPart& part : run) {
      count += static_cast<std::uint32_t>(part.count);
      bytes += static_cast<std::uint32_t>(part.encoded.payload.size());
    }
    make_room(bytes);
    assert(run.size() > 1 && count <= kPackElements);
    constexpr std::span<const std::uint32_t> kNoSums;  // those of single parts are not that of their chunk
    const Bytes payload(run.front().encoded.payload.data(), bytes);
    builder_.add_segment({.part = run.front().index,
                          .count = count,
                          .codec = run.front().codec->info().id,
                          .parts = static_cast<std::uint32_t>(run.size())},
                         payload, std::span(&bytes, 1), 0, run.front().is_lent ? run.front().sums : kNoSums);
    frames_.add(payload);
  }

  void add_bare(const SentPart& part) {
    if (builder_.segment_count() == kMaxFrameSegments) next_frame();
    builder_.add_bare(
        {.part = part.index, .count = static_cast<std::uint32_t>(part.count), .state = part.state});
  }

  void make_room(std::uint64_t bytes) {
    const bool is_full = builder_.segment_count() == kMaxFrameSegments ||
                         builder_.payload_bytes() + bytes > kFramePayloadTarget;
    if (builder_.segment_count() > 0 && is_full) next_frame();
  }

  // The end of the chunks from `begin` on that the open frame takes: at least one.
  std::size_t chunks_that_fit(const ChunkRun& run, std::size_t begin) {
    const auto ends = run.ends;
    const std::uint32_t start = start_of(ends, begin);
    make_room(ends[begin] - start);
    std::size_t end = begin + 1;
    while (end < ends.size() && builder_.payload_bytes() + (ends[end] - start) <= kFramePayloadTarget) ++end;
    return end;
  }

  // Of chunks without halves there is none that older frames don't have: they are zeros or stored.
  static std::uint8_t version_of(const SentPart& part, const ChunkRun& run, std::size_t begin,
                                 std::size_t end) noexcept {
    if (part.frame_version < kHalfFormVersion) return part.frame_version;
    constexpr std::byte kHalves{0x80};  // of a chunk's first byte (gcomp's spec.md, section 1)
    for (std::size_t i = begin; i < end; ++i) {
      const std::byte first = run.chunks.empty() ? run.payload[start_of(run.ends, i)] : run.chunks[i][0];
      if ((first & kHalves) != std::byte{}) return part.frame_version;
    }
    return kFrameVersion;
  }

  void add_range(const SentPart& part, const ChunkRun& run, std::size_t begin, std::size_t end) {
    assert(begin < end && end <= run.ends.size());
    const std::uint32_t start = start_of(run.ends, begin);
    const std::uint64_t skipped = part.codec->info().chunk_elements * begin;
    const std::uint64_t count =
        end == run.ends.size() ? run.count - skipped : part.codec->info().chunk_elements * (end - begin);
    assert(skipped + count <= run.count && count > 0);
    const Segment segment{.part = part.index,
                          .begin = static_cast<std::uint32_t>(run.first + skipped),
                          .count = static_cast<std::uint32_t>(count),
                          .codec = part.codec->info().id,
                          .scalar = part.encoded.scalar,
                          .scalar2 = part.encoded.scalar2};
    builder_.need_version(version_of(part, run, begin, end));
    const auto sums = run.sums.empty() ? run.sums : run.sums.subspan(begin, end - begin);
    const Bytes payload =
        run.payload.empty() ? run.payload : run.payload.subspan(start, run.ends[end - 1] - start);
    builder_.add_segment(segment, payload, run.ends.subspan(begin, end - begin), start, sums);
    if (!payload.empty()) return frames_.add(payload);
    for (const Bytes chunk : run.chunks.subspan(begin, end - begin)) frames_.add(chunk);
  }

  void close_frame() {
    const std::uint64_t head_bytes = builder_.finish();
    frames_.close(Bytes(frames_.heads()).last(head_bytes));
  }

  void next_frame() {
    close_frame();
    ++header_.seq;
    builder_ = FrameBuilder(header_, frames_.heads());
  }

  FrameHeader header_;
  Frames& frames_;
  FrameBuilder builder_;
};

}  // namespace deltawire
