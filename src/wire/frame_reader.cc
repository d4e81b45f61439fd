// Parses frames. The only code that reads an untrusted header: nothing is used before it is checked, and
// the checksum of header, segments and index is verified before any of them is believed.
#include <algorithm>
#include <string>

#include "base/checked.h"
#include "base/crc32c.h"
#include "base/little_endian.h"
#include "deltawire/frame.h"
#include "wire/frame_layout.h"

namespace deltawire {
namespace {

using namespace frame_layout;

FrameHeader read_fields(const std::byte* at) noexcept {
  FrameHeader header;
  header.codec = load_le<std::uint16_t>(at + kCodecAt);
  header.params_hash = load_le<std::uint64_t>(at + kParamsHashAt);
  header.spec_hash = load_le<std::uint64_t>(at + kSpecHashAt);
  header.step = load_le<std::uint64_t>(at + kStepAt);
  header.epoch = load_le<std::uint32_t>(at + kEpochAt);
  header.seq = load_le<std::uint32_t>(at + kSeqAt);
  header.rank = load_le<std::uint16_t>(at + kRankAt);
  header.world = load_le<std::uint16_t>(at + kWorldAt);
  header.slice = load_le<std::uint16_t>(at + kSliceAt);
  return header;
}

Status check_start(Bytes bytes) {
  if (bytes.size() < kFrameHeaderBytes) {
    return fail(ErrorCode::kTruncated,
                "frame: " + std::to_string(bytes.size()) + " bytes, but a frame header alone has 64");
  }
  if (load_le<std::uint32_t>(bytes.data() + kMagicAt) != kFrameMagic) {
    return fail(ErrorCode::kCorrupt, "frame: wrong magic number; these bytes are no deltawire frame");
  }
  const auto version = std::to_integer<unsigned>(bytes[kVersionAt]);
  if (version != kFrameVersion) {
    return fail(ErrorCode::kUnsupportedVersion,
                "frame: format " + std::to_string(version) + ", but this build reads format " +
                    std::to_string(kFrameVersion) + " only; use a newer deltawire");
  }
  return {};
}

bool is_bare(const std::byte* segment) noexcept {
  return (load_le<std::uint32_t>(segment + kTensorAt) & kBareBit) != 0;
}

std::uint32_t coded_segments(Bytes bytes, std::uint32_t segments) noexcept {
  std::uint32_t coded = 0;
  for (std::uint32_t i = 0; i < segments; ++i) {
    if (!is_bare(bytes.data() + kFrameHeaderBytes + kSegmentBytes * i)) ++coded;
  }
  return coded;
}

Status check_segments(Bytes bytes, std::uint32_t segments) {
  for (std::uint32_t i = 0; i < segments; ++i) {
    const std::byte* segment = bytes.data() + kFrameHeaderBytes + kSegmentBytes * i;
    const auto first = load_le<std::uint32_t>(segment + kFirstAt);
    const auto count = load_le<std::uint32_t>(segment + kCountAt);
    if (count == 0 || count > UINT32_MAX - first) {
      return fail(ErrorCode::kCorrupt, "frame: segment " + std::to_string(i) + " has no legal range");
    }
    if (!is_bare(segment)) continue;
    const bool raw = (load_le<std::uint32_t>(segment + kTensorAt) & kTopBit) != 0;
    if (raw || load_le<std::uint32_t>(segment + kScalarAt) > kNotFiniteScalar) {
      return fail(ErrorCode::kCorrupt, "frame: segment " + std::to_string(i) + " has no legal state");
    }
  }
  return {};
}

Status check_index(Bytes bytes, std::uint32_t segments, std::uint32_t chunks) {
  const std::uint64_t index_at = kFrameHeaderBytes + kSegmentBytes * segments;
  const std::uint64_t header_bytes = index_at + kChunkEntryBytes * chunks;
  std::uint32_t previous = 0;
  std::uint32_t closed = 0;
  bool last = true;
  for (std::uint32_t i = 0; i < chunks; ++i) {
    const auto entry = load_le<std::uint32_t>(bytes.data() + index_at + kChunkEntryBytes * i);
    const std::uint32_t end = entry & ~kTopBit;
    if (end <= previous) return fail(ErrorCode::kCorrupt, "frame: chunk ends do not grow");
    last = (entry & kTopBit) != 0;
    closed += last ? 1 : 0;
    previous = end;
  }
  if (closed != coded_segments(bytes, segments) || !last) {
    return fail(ErrorCode::kCorrupt, "frame: the chunk index does not match the segments");
  }
  if (header_bytes + previous != load_le<std::uint32_t>(bytes.data() + kFrameBytesAt)) {
    return fail(ErrorCode::kCorrupt, "frame: the chunks do not fill the payload");
  }
  return check_segments(bytes, segments);
}

}  // namespace

Result<FrameReader> FrameReader::open(Bytes bytes) {
  if (Status start = check_start(bytes); !start) return forward_error(start);
  const std::byte* at = bytes.data();
  const std::uint64_t header_bytes = load_le<std::uint32_t>(at + kHeaderBytesAt);
  const std::uint64_t frame_bytes = load_le<std::uint32_t>(at + kFrameBytesAt);
  const std::uint32_t segments = load_le<std::uint16_t>(at + kSegmentsAt);
  const std::uint32_t chunks = load_le<std::uint32_t>(at + kChunksAt);
  // Sums of a 16-bit and a 32-bit count times small constants: no wrap in 64 bits.
  if (header_bytes != kFrameHeaderBytes + kSegmentBytes * segments + kChunkEntryBytes * chunks) {
    return fail(ErrorCode::kCorrupt, "frame: the header's length does not match its counts");
  }
  if (header_bytes > bytes.size()) return fail(ErrorCode::kTruncated, "frame: ends within its header");
  const std::uint32_t crc =
      crc32c(bytes.subspan(kFrameHeaderBytes, header_bytes - kFrameHeaderBytes), crc32c(bytes.first(kCrcAt)));
  if (crc != load_le<std::uint32_t>(at + kCrcAt)) {
    return fail(ErrorCode::kCorrupt, "frame: the header's checksum is wrong; the bytes changed on the way");
  }
  if (std::to_integer<unsigned>(bytes[kFlagsAt]) != 0) {
    return fail(ErrorCode::kCorrupt, "frame: unknown flags are set");
  }
  if (segments == 0) return fail(ErrorCode::kCorrupt, "frame: no segments");
  if (frame_bytes > kMaxFrameBytes) {
    return fail(ErrorCode::kLimit, "frame: " + std::to_string(frame_bytes) + " bytes exceed the limit of " +
                                       std::to_string(kMaxFrameBytes));
  }
  if (Status index = check_index(bytes, segments, chunks); !index) return forward_error(index);
  if (frame_bytes > bytes.size()) {
    return fail(ErrorCode::kTruncated, "frame: " + std::to_string(bytes.size()) + " of " +
                                           std::to_string(frame_bytes) + " bytes are there");
  }
  FrameReader reader;
  reader.bytes_ = bytes.first(frame_bytes);
  reader.header_ = read_fields(at);
  if (reader.header_.rank >= reader.header_.world) {
    return fail(ErrorCode::kCorrupt, "frame: the sender's rank is not below the world size");
  }
  reader.frame_bytes_ = frame_bytes;
  reader.header_bytes_ = header_bytes;
  reader.segment_count_ = segments;
  reader.chunk_count_ = chunks;
  return reader;
}

Result<SegmentView> FrameReader::next() {
  const std::byte* at = bytes_.data() + kFrameHeaderBytes + kSegmentBytes * next_segment_;
  const std::byte* index = bytes_.data() + kFrameHeaderBytes + kSegmentBytes * segment_count_;
  SegmentView view;
  const auto tensor = load_le<std::uint32_t>(at + kTensorAt);
  view.segment.tensor = tensor & ~(kTopBit | kBareBit);
  view.segment.raw = (tensor & kTopBit) != 0;
  view.segment.first = load_le<std::uint32_t>(at + kFirstAt);
  view.segment.count = load_le<std::uint32_t>(at + kCountAt);
  view.segment.scalar = load_le<std::uint32_t>(at + kScalarAt);
  ++next_segment_;
  if (is_bare(at)) {
    view.segment.state =
        view.segment.scalar == kNothingScalar ? SegmentState::kNothing : SegmentState::kNotFinite;
    return view;
  }
  const Bytes payload = bytes_.subspan(header_bytes_);
  const std::uint32_t start = payload_at_;
  ends_.clear();
  for (bool last = false; !last; ++next_chunk_) {
    const std::byte* entry = index + kChunkEntryBytes * next_chunk_;
    const auto end = load_le<std::uint32_t>(entry);
    last = (end & kTopBit) != 0;
    const std::uint32_t stop = end & ~kTopBit;
    const std::uint32_t crc = crc32c(payload.subspan(payload_at_, stop - payload_at_), next_chunk_);
    if (crc != load_le<std::uint32_t>(entry + 4)) {
      return fail(ErrorCode::kCorrupt, "frame: the checksum of chunk " + std::to_string(next_chunk_) +
                                           " is wrong; the bytes changed on the way");
    }
    ends_.push_back(stop - start);
    payload_at_ = stop;
  }
  view.part = PartView{payload.subspan(start, payload_at_ - start), ends_, view.segment.scalar};
  return view;
}

}  // namespace deltawire
