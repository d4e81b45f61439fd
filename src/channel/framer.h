// Cuts encoded parts into segments and frames.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>

#include "channel/message_encoder.h"
#include "deltawire/frame.h"
#include "wire/frame_builder.h"

namespace deltawire {

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
