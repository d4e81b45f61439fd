#include "channel/message_encoder.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/little_endian.h"
#include "wire/frame_builder.h"
#include "wire/frame_layout.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kMaxSegments = 65535;

bool can_be_packed(const SentPart& part) noexcept {
  return part.is_raw && part.state == SegmentState::kCoded && part.encoded.chunk_ends.size() == 1;
}

// As many parts from the first on as one segment holds: raw ones, coded alike.
std::span<const SentPart> run_of(std::span<const SentPart> parts) noexcept {
  std::uint64_t elements = 0;
  std::size_t count = 0;
  while (count < parts.size() && can_be_packed(parts[count]) && parts[count].codec == parts[0].codec &&
         elements + parts[count].count <= kPackElements) {
    elements += parts[count++].count;
  }
  return parts.first(std::max<std::size_t>(count, 1));
}

std::uint32_t start_of(std::span<const std::uint32_t> ends, std::size_t chunk) {
  return chunk == 0 ? 0 : ends[chunk - 1];
}

class Framer {
 public:
  Framer(const FrameHeader& header, std::vector<std::byte>& heads)
      : header_(header), heads_(heads), builder_(header, heads) {}

  void add(const SentPart& part) { part.state == SegmentState::kCoded ? add_coded(part) : add_bare(part); }
  void finish() { builder_.finish(); }

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
    builder_.add_segment({.part = run.front().index,
                          .count = count,
                          .codec = run.front().codec->info().id,
                          .parts = static_cast<std::uint32_t>(run.size())},
                         Bytes(run.front().encoded.payload.data(), bytes), std::span(&bytes, 1));
  }

 private:
  void add_bare(const SentPart& part) {
    if (builder_.segment_count() == kMaxSegments) next_frame();
    builder_.add_bare(
        {.part = part.index, .count = static_cast<std::uint32_t>(part.count), .state = part.state});
  }

  void add_coded(const SentPart& part) {
    const std::uint64_t chunk_elements = part.codec->info().chunk_elements;
    const auto ends = part.encoded.chunk_ends;
    std::size_t begin = 0;
    while (begin < ends.size()) {
      if (builder_.segment_count() == kMaxSegments) next_frame();
      const std::size_t end = chunk_elements == 0 ? ends.size() : chunks_that_fit(part, begin);
      add_range(part, begin, end);
      begin = end;
      if (begin < ends.size()) next_frame();
    }
  }

  void make_room(std::uint64_t bytes) {
    const bool is_full =
        builder_.segment_count() == kMaxSegments || builder_.payload_bytes() + bytes > kFramePayloadTarget;
    if (builder_.segment_count() > 0 && is_full) next_frame();
  }

  // The end of the run of chunks from `begin` that the open frame takes: at least one chunk.
  std::size_t chunks_that_fit(const SentPart& part, std::size_t begin) {
    const auto ends = part.encoded.chunk_ends;
    const std::uint32_t start = start_of(ends, begin);
    make_room(ends[begin] - start);
    std::size_t end = begin + 1;
    while (end < ends.size() && builder_.payload_bytes() + (ends[end] - start) <= kFramePayloadTarget) ++end;
    return end;
  }

  // Of chunks without halves there is none that older frames don't have: they are zeros or stored.
  static std::uint8_t version_of(const SentPart& part, std::size_t begin, std::size_t end) noexcept {
    if (part.frame_version < kHalfFormVersion) return part.frame_version;
    constexpr std::byte kHalves{0x80};  // of a chunk's first byte (gcomp's spec.md, section 1)
    for (std::size_t i = begin; i < end; ++i) {
      const std::byte first = part.encoded.payload[start_of(part.encoded.chunk_ends, i)];
      if ((first & kHalves) != std::byte{}) return part.frame_version;
    }
    return kFrameVersion;
  }

  void add_range(const SentPart& part, std::size_t begin, std::size_t end) {
    assert(begin < end && end <= part.encoded.chunk_ends.size());
    const auto ends = part.encoded.chunk_ends;
    const std::uint32_t start = start_of(ends, begin);
    const std::uint64_t skipped = part.codec->info().chunk_elements * begin;
    const std::uint64_t count =
        end == ends.size() ? part.count - skipped : part.codec->info().chunk_elements * (end - begin);
    assert(skipped + count <= part.count && count > 0);
    const Segment segment{.part = part.index,
                          .begin = static_cast<std::uint32_t>(skipped),
                          .count = static_cast<std::uint32_t>(count),
                          .codec = part.codec->info().id,
                          .scalar = part.encoded.scalar,
                          .scalar2 = part.encoded.scalar2};
    builder_.need_version(version_of(part, begin, end));
    builder_.add_segment(segment, part.encoded.payload.subspan(start, ends[end - 1] - start),
                         ends.subspan(begin, end - begin), start,
                         part.sums.empty() ? part.sums : part.sums.subspan(begin, end - begin));
  }

  void next_frame() {
    builder_.finish();
    ++header_.seq;
    builder_ = FrameBuilder(header_, heads_);
  }

  FrameHeader header_;
  std::vector<std::byte>& heads_;
  FrameBuilder builder_;
};

// The heads say how long they are, and their payloads.
void list_pieces(Message& message) {
  Bytes heads(message.heads);
  Bytes payload(message.payload.bytes());
  while (!heads.empty()) {
    const std::uint64_t head_bytes = load_le<std::uint32_t>(heads.data() + frame_layout::kHeadBytesAt);
    const std::uint64_t frame_bytes = load_le<std::uint32_t>(heads.data() + frame_layout::kFrameBytesAt);
    assert(frame_bytes >= head_bytes && frame_bytes - head_bytes <= payload.size());
    message.pieces.push_back(heads.first(head_bytes));
    heads = heads.subspan(head_bytes);
    message.pieces.push_back(payload.first(frame_bytes - head_bytes));
    payload = payload.subspan(frame_bytes - head_bytes);
  }
}

}  // namespace

Message& StepMessages::add(const MessageLists& lists) {
  assert(used_ <= all_.size());
  if (used_ == all_.size()) all_.emplace_back().held = MeteredBytes(meter_, MemoryMeter::Use::kMessages);
  longest_ = {std::max(longest_.chunks, lists.chunks), std::max(longest_.head_bytes, lists.head_bytes),
              std::max(longest_.pieces, lists.pieces)};
  Message& message = all_[used_++];
  for (std::vector<std::uint32_t>* const list : {&message.chunk_ends, &message.chunk_sums}) {
    list->reserve(longest_.chunks);
    list->resize(lists.chunks);
  }
  message.heads.reserve(longest_.head_bytes);
  message.heads.clear();
  message.pieces.reserve(longest_.pieces);
  message.pieces.clear();
  message.is_needed = true;
  message.is_released = false;
  return message;
}

// Messages are released nearly in their order, so that the search is short.
void StepMessages::release(std::span<const Bytes> pieces) noexcept {
  for (std::size_t i = first_unreleased_; i < used_; ++i) {
    if (all_[i].is_released || all_[i].pieces.data() != pieces.data()) continue;
    all_[i].is_released = true;
    if (!all_[i].is_needed) all_[i].payload.reset();
    break;
  }
  while (first_unreleased_ < used_ && all_[first_unreleased_].is_released) ++first_unreleased_;
}

void StepMessages::end_step() noexcept {
  assert(first_unreleased_ <= used_ && used_ <= all_.size());
  while (all_.size() > used_) all_.pop_back();
  for (Message& message : all_) message.payload.reset();
  used_ = 0;
  first_unreleased_ = 0;
}

void StepMessages::swap(StepMessages& other) noexcept {
  all_.swap(other.all_);
  std::swap(used_, other.used_);
  std::swap(first_unreleased_, other.first_unreleased_);
  std::swap(longest_, other.longest_);
}

MessageLists lists_of(std::uint64_t payload_bytes, std::uint64_t chunks, std::uint64_t parts) noexcept {
  // A frame is closed for its bytes only when the next chunk would not fit: two neighbours hold more than
  // the target together. Each cut adds a frame and at most one more segment.
  const std::uint64_t frames = 2 + 2 * (payload_bytes / kFramePayloadTarget) + parts / kMaxSegments;
  return {.chunks = chunks,
          .head_bytes = kFrameHeaderBytesMax * frames + kSegmentBytesMax * (parts + frames) +
                        kChunkEntryBytesMax * chunks,
          .pieces = 2 * frames};
}

void frame_message(std::span<const SentPart> parts, FrameHeader header, Message& message) {
  if (parts.empty()) return;
  assert(message.heads.empty() && message.pieces.empty());
  header.seq = 0;
  Framer framer(header, message.heads);
  while (!parts.empty()) {
    const std::span<const SentPart> run = run_of(parts);
    run.size() > 1 ? framer.add_packed(run) : framer.add(run.front());
    parts = parts.subspan(run.size());
  }
  framer.finish();
  list_pieces(message);
}

}  // namespace deltawire
