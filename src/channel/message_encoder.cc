#include "channel/message_encoder.h"

#include <utility>

#include "wire/frame_builder.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kMaxSegments = 65535;

class Framer {
 public:
  Framer(const FrameHeader& header, Message& message)
      : header_(header), message_(message), builder_(header) {}

  void add(const SentPart& part) {
    if (part.state == SegmentState::kCoded) {
      add_coded(part);
    } else {
      add_bare(part);
    }
  }

  void finish() {
    if (builder_.segment_count() > 0) close();
    // Pieces are made last: the vector of heads no longer moves.
    const std::byte* at = message_.payload.get();
    for (std::size_t i = 0; i < message_.heads.size(); ++i) {
      message_.pieces.emplace_back(message_.heads[i]);
      if (payload_bytes_[i] == 0) continue;
      message_.pieces.emplace_back(at, payload_bytes_[i]);
      at += payload_bytes_[i];
    }
  }

 private:
  void add_bare(const SentPart& part) {
    if (builder_.segment_count() == kMaxSegments) close();
    builder_.add_bare(
        {.part = part.index, .count = static_cast<std::uint32_t>(part.count), .state = part.state});
  }

  void add_coded(const SentPart& part) {
    const std::uint64_t chunk_elements = part.codec->info().chunk_elements;
    const auto ends = part.encoded.chunk_ends;
    std::size_t begin = 0;
    while (begin < ends.size()) {
      if (builder_.segment_count() == kMaxSegments) close();
      const std::size_t end = chunk_elements == 0 ? ends.size() : chunks_that_fit(part, begin);
      add_range(part, begin, end);
      begin = end;
      if (begin < ends.size()) close();
    }
  }

  static std::uint32_t start_of(std::span<const std::uint32_t> ends, std::size_t chunk) {
    return chunk == 0 ? 0 : ends[chunk - 1];
  }

  // The end of the run of chunks from `begin` that the open frame takes: at least one chunk.
  std::size_t chunks_that_fit(const SentPart& part, std::size_t begin) {
    const auto ends = part.encoded.chunk_ends;
    const std::uint32_t start = start_of(ends, begin);
    if (builder_.segment_count() > 0 &&
        builder_.payload_bytes() + (ends[begin] - start) > kFramePayloadTarget) {
      close();
    }
    std::size_t end = begin + 1;
    while (end < ends.size() && builder_.payload_bytes() + (ends[end] - start) <= kFramePayloadTarget) ++end;
    return end;
  }

  void add_range(const SentPart& part, std::size_t begin, std::size_t end) {
    const auto ends = part.encoded.chunk_ends;
    const std::uint32_t start = start_of(ends, begin);
    shifted_.clear();
    for (std::size_t i = begin; i < end; ++i) shifted_.push_back(ends[i] - start);
    const std::uint64_t skipped = part.codec->info().chunk_elements * begin;
    const std::uint64_t count =
        end == ends.size() ? part.count - skipped : part.codec->info().chunk_elements * (end - begin);
    const Segment segment{.part = part.index,
                          .begin = static_cast<std::uint32_t>(skipped),
                          .count = static_cast<std::uint32_t>(count),
                          .codec = part.codec->info().id,
                          .scalar = part.encoded.scalar,
                          .scalar2 = part.encoded.scalar2};
    builder_.add_segment(segment, part.encoded.payload.subspan(start, ends[end - 1] - start), shifted_);
  }

  void close() {
    message_.heads.push_back(builder_.finish());
    payload_bytes_.push_back(builder_.payload_bytes());
    ++header_.seq;
    builder_ = FrameBuilder(header_);
  }

  FrameHeader header_;
  Message& message_;
  FrameBuilder builder_;
  std::vector<std::uint64_t> payload_bytes_;
  std::vector<std::uint32_t> shifted_;
};

}  // namespace

void Message::count() noexcept {
  std::uint64_t bytes = payload_capacity + sizeof(std::uint32_t) * chunk_ends.capacity();
  for (const auto& head : heads) bytes += head.capacity();
  held.set(bytes);
}

std::uint64_t framing_bound(std::uint64_t payload_bytes, std::uint64_t chunks, std::uint64_t parts) noexcept {
  // A frame is closed for its bytes only when the next chunk would not fit: two neighbours hold more than
  // the target together. Each cut adds a frame and at most one more segment.
  const std::uint64_t frames = 2 + 2 * (payload_bytes / kFramePayloadTarget) + parts / kMaxSegments;
  return kFrameHeaderBytesMax * frames + kSegmentBytesMax * (parts + frames) + kChunkEntryBytesMax * chunks;
}

void frame_message(std::span<const SentPart> parts, FrameHeader header, Message& message) {
  header.seq = 0;
  Framer framer(header, message);
  for (const SentPart& part : parts) framer.add(part);
  framer.finish();
}

}  // namespace deltawire
