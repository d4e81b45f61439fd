#include "wire/frame_builder.h"

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "wire/frame_layout.h"

namespace deltawire {

using namespace frame_layout;

namespace {

void store_segment(const Segment& segment, std::byte* at) noexcept {
  std::uint32_t marks = segment.raw ? kTopBit : 0;
  std::uint32_t scalar = segment.scalar;
  if (segment.state != SegmentState::kCoded) {
    marks |= kBareBit;
    scalar = segment.state == SegmentState::kNothing ? kNothingScalar : kNotFiniteScalar;
  }
  store_le<std::uint32_t>(at + kTensorAt, segment.tensor | marks);
  store_le<std::uint32_t>(at + kFirstAt, segment.first);
  store_le<std::uint32_t>(at + kCountAt, segment.count);
  store_le<std::uint32_t>(at + kScalarAt, scalar);
}

}  // namespace

void FrameBuilder::add_segment(const Segment& segment, Bytes payload, std::span<const std::uint32_t> ends) {
  segments_.push_back(segment);
  const auto base = static_cast<std::uint32_t>(payload_bytes_);
  std::uint32_t begin = 0;
  for (const std::uint32_t end : ends) {
    // Seeded with the chunk's number, so that swapped chunks of equal length are found.
    const auto number = static_cast<std::uint32_t>(chunks_.size());
    chunks_.push_back({base + end, crc32c(payload.subspan(begin, end - begin), number)});
    begin = end;
  }
  chunks_.back().end |= kTopBit;
  payload_bytes_ += payload.size();
}

std::vector<std::byte> FrameBuilder::finish() const {
  const std::uint64_t head_bytes =
      kFrameHeaderBytes + kSegmentBytes * segments_.size() + kChunkEntryBytes * chunks_.size();
  std::vector<std::byte> head(head_bytes);
  std::byte* at = head.data();
  store_le<std::uint32_t>(at + kMagicAt, kFrameMagic);
  at[kVersionAt] = static_cast<std::byte>(kFrameVersion);
  store_le<std::uint16_t>(at + kCodecAt, header_.codec);
  store_le<std::uint32_t>(at + kHeaderBytesAt, static_cast<std::uint32_t>(head_bytes));
  store_le<std::uint32_t>(at + kFrameBytesAt, static_cast<std::uint32_t>(head_bytes + payload_bytes_));
  store_le<std::uint64_t>(at + kParamsHashAt, header_.params_hash);
  store_le<std::uint64_t>(at + kSpecHashAt, header_.spec_hash);
  store_le<std::uint64_t>(at + kStepAt, header_.step);
  store_le<std::uint32_t>(at + kEpochAt, header_.epoch);
  store_le<std::uint32_t>(at + kSeqAt, header_.seq);
  store_le<std::uint16_t>(at + kRankAt, header_.rank);
  store_le<std::uint16_t>(at + kWorldAt, header_.world);
  store_le<std::uint16_t>(at + kSliceAt, header_.slice);
  store_le<std::uint16_t>(at + kSegmentsAt, static_cast<std::uint16_t>(segments_.size()));
  store_le<std::uint32_t>(at + kChunksAt, static_cast<std::uint32_t>(chunks_.size()));
  at += kFrameHeaderBytes;
  for (const Segment& segment : segments_) {
    store_segment(segment, at);
    at += kSegmentBytes;
  }
  for (const Chunk& chunk : chunks_) {
    store_le<std::uint32_t>(at, chunk.end);
    store_le<std::uint32_t>(at + 4, chunk.crc);
    at += kChunkEntryBytes;
  }
  const Bytes all(head);
  store_le<std::uint32_t>(head.data() + kCrcAt,
                          crc32c(all.subspan(kFrameHeaderBytes), crc32c(all.first(kCrcAt))));
  return head;
}

}  // namespace deltawire
