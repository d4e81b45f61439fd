// The frame: the self-describing, checksummed unit of the wire. docs/format.md is its specification.
//
//   header (64 bytes) | segments (16 bytes each) | chunk index (8 bytes each) | payload
//
// A segment is a run of whole chunks of one part; a chunk is the unit that a codec decodes alone and that
// has a checksum of its own. A message is one or more frames, one after another.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "deltawire/codec.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

inline constexpr std::uint32_t kFrameMagic = 0x46575744;  // bytes "DWWF"
inline constexpr std::uint8_t kFrameVersion = 0;          // 0 may still change; 1 will not
inline constexpr std::uint64_t kFrameHeaderBytes = 64;
inline constexpr std::uint64_t kSegmentBytes = 16;
inline constexpr std::uint64_t kChunkEntryBytes = 8;
inline constexpr std::uint64_t kMaxFrameBytes = std::uint64_t{256} << 20;

// What a frame says of itself, beside lengths and checksums.
struct FrameHeader {
  std::uint16_t codec = 0;        // CodecInfo::id of the segments that aren't raw
  std::uint64_t params_hash = 0;  // of the canonical codec spec and policy
  std::uint64_t spec_hash = 0;    // of the message's parts: names, ranges, dtypes, order
  std::uint64_t step = 0;
  std::uint32_t epoch = 0;  // membership epoch
  std::uint32_t seq = 0;    // number of the frame in its message, from 0
  std::uint16_t rank = 0;   // sender
  std::uint16_t world = 1;  // ranks in the job
  std::uint16_t slice = 0;  // which message of the step (docs/format.md, "Slices")
};

// How a segment's values are given. All but kCoded stand for a whole part without a byte of payload.
enum class SegmentState : std::uint8_t {
  kCoded,      // in chunks, by a codec
  kNothing,    // the sender keeps the part for later: zeros, and nothing to add
  kNotFinite,  // the part has values that its codec can't carry: NaN, every element
};

// Elements [first, first + count) of the part's tensor.
struct Segment {
  std::uint32_t tensor = 0;  // index of the part in the message's list; < 2^30
  bool raw = false;          // coded by fp32 instead of the frame's codec (policy: small tensors)
  std::uint32_t first = 0;
  std::uint32_t count = 0;  // >= 1
  std::uint32_t scalar = 0;
  SegmentState state = SegmentState::kCoded;
};

struct SegmentView {
  Segment segment;
  PartView part;  // empty unless coded; chunk_ends lie in the reader's memory and last until its next call
};

// Reads one frame from hostile bytes: every length, offset and checksum is verified before it is used, and
// nothing that the bytes say sizes an allocation beyond their own number.
class FrameReader {
 public:
  // Checks the header, the segments and the index of the first frame in `bytes` (which may go on after it).
  // Errors: kTruncated, kCorrupt, kUnsupportedVersion, kLimit.
  static Result<FrameReader> open(Bytes bytes);

  const FrameHeader& header() const noexcept { return header_; }
  std::uint64_t frame_bytes() const noexcept { return frame_bytes_; }
  std::uint32_t segment_count() const noexcept { return segment_count_; }
  std::uint32_t chunk_count() const noexcept { return chunk_count_; }
  std::uint32_t segments_left() const noexcept { return segment_count_ - next_segment_; }

  // The next segment, its chunks' checksums verified. REQUIRES: segments_left() > 0. Errors: kCorrupt.
  Result<SegmentView> next();

 private:
  FrameReader() = default;

  Bytes bytes_;  // exactly the frame
  FrameHeader header_;
  std::uint64_t frame_bytes_ = 0;
  std::uint64_t header_bytes_ = 0;
  std::uint32_t segment_count_ = 0;
  std::uint32_t chunk_count_ = 0;
  std::uint32_t next_segment_ = 0;
  std::uint32_t next_chunk_ = 0;
  std::uint32_t payload_at_ = 0;
  std::vector<std::uint32_t> ends_;
};

}  // namespace deltawire
