// The frame: the self-describing, checksummed unit of the wire. docs/reference/format.md is its
// specification.
//
//   header | segments, each with its chunks' lengths and checksums | payload
//
// A segment is a run of whole chunks of one part; a chunk is the unit that a codec decodes independently and
// that has its own checksum. A message is one or more frames, one after another.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/codec.h"
#include "deltawire/export.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

inline constexpr std::uint32_t kFrameMagic = 0x46575744;  // bytes "DWWF"
// Both are frozen (docs/reference/format.md says what that means). A frame has the lowest version that can
// express its content.
inline constexpr std::uint8_t kFrameVersion = 1;
// Version 2 adds runs of whole parts, and values in their tensor's own 16 bits; version 3 a codec's form for
// such tensors (CodecInfo::half_form), and version 4 that of a lossless codec.
inline constexpr std::uint8_t kHalfValuesVersion = 2;
inline constexpr std::uint8_t kHalfFormVersion = 3;
inline constexpr std::uint8_t kLosslessHalfFormVersion = 4;
inline constexpr std::uint8_t kNewestFrameVersion = 4;
inline constexpr std::uint64_t kMaxFrameBytes = std::uint64_t{256} << 20;

// The lowest version of frames that may have a codec's form for 16-bit tensors, if it has one.
constexpr std::uint8_t half_form_version(const CodecInfo& codec) noexcept {
  return codec.lossless ? kLosslessHalfFormVersion : kHalfFormVersion;
}

// Upper bounds in bytes: of a header, of a segment without its chunks, and of a chunk's entry.
inline constexpr std::uint64_t kFrameHeaderBytesMax = 59;
inline constexpr std::uint64_t kSegmentBytesMax = 32;
inline constexpr std::uint64_t kChunkEntryBytesMax = 9;

// Identifies a message within a mesh; sender and receiver must agree on all of it.
struct MessageId {
  std::uint64_t step = 0;
  std::uint16_t rank = 0;    // the sender
  std::uint16_t world = 1;   // ranks in the job
  std::uint16_t bucket = 0;  // of the step
  std::uint16_t stage = 0;   // which message of the bucket (docs/reference/format.md, "Buckets and stages")
  // The factor by which the parts' values are scaled (a loss scale): finite, above 0. A residual remembers
  // its scale and follows: it is multiplied by new / old, rounded once, before the input is added.
  // Powers of two change no bit but where values leave float32's range: small ones become subnormal or 0.
  float scale = 1.0F;
};

// What a frame says about itself, besides lengths and checksums.
struct FrameHeader {
  MessageId message;
  std::uint32_t params_hash = 0;  // of the canonical codec spec and policy
  std::uint32_t layout_hash = 0;  // of the message's parts: names, ranges, dtypes, order
  std::uint32_t seq = 0;          // number of the frame in its message, from 0
};

// How a segment's values are given. All but kCoded represent a whole part without any payload.
enum class SegmentState : std::uint8_t {
  kCoded = 0,      // in chunks, by a codec
  kNothing = 1,    // the sender keeps the part for later: every element is zero, nothing is added
  kNotFinite = 2,  // the part has values that its codec can't carry: every element is NaN
};

// Elements [begin, begin + count) of a part.
struct Segment {
  std::uint32_t part = 0;   // index in the message's list
  std::uint32_t begin = 0;  // 0 unless coded
  std::uint32_t count = 0;  // >= 1
  SegmentState state = SegmentState::kCoded;
  std::uint16_t codec = 0;  // CodecInfo::id; 0 unless coded
  std::uint32_t scalar = 0;
  std::uint32_t scalar2 = 0;
  std::uint32_t parts = 1;  // how many whole parts, from `part` on, it holds as if they were one; version 2
};

struct SegmentView {
  Segment segment;
  PartView part;  // empty unless coded; chunk_ends last until the next call
};

// A segment whose chunks' checksums have not been verified.
struct UncheckedSegment {
  Segment segment;
  Bytes payload;                  // of all its chunks; empty unless coded
  std::uint32_t first_chunk = 0;  // the first one's number in the frame
  std::uint32_t chunks = 0;
};

// Reads one frame from hostile bytes: every length and checksum is verified before it is used, and no
// allocation is larger than the number of bytes that are there.
class DELTAWIRE_API FrameReader {
 public:
  // Checks the head (header, segments) of the first frame in `bytes`; more bytes may follow it.
  // Errors: kTruncated, kCorrupt, kUnsupportedVersion, kLimit.
  static Result<FrameReader> open(Bytes bytes);
  // The same for a frame whose payload is not adjacent to its head; nothing may follow the payload.
  static Result<FrameReader> open(Bytes head, Bytes payload);

  const FrameHeader& header() const noexcept { return header_; }
  std::uint8_t version() const noexcept { return version_; }
  std::uint64_t frame_bytes() const noexcept { return frame_bytes_; }
  std::uint64_t header_bytes() const noexcept { return header_bytes_; }  // before the first segment
  std::uint64_t head_bytes() const noexcept { return head_.size(); }     // before the payload
  std::uint32_t segment_count() const noexcept { return segment_count_; }
  std::uint32_t segments_left() const noexcept { return segments_left_; }

  // The next segment, its chunks' checksums verified. REQUIRES: segments_left() > 0. Errors: kCorrupt.
  Result<SegmentView> next();
  // The same without reading the payload: appends where each chunk ends in the segment, and its checksum.
  // Don't trust a chunk before check_chunks() has verified it.
  UncheckedSegment next_unchecked(std::vector<std::uint32_t>& ends, std::vector<std::uint32_t>& sums);
  // Verifies the checksums of chunks that fill `payload`; `first` is the first one's number in the frame.
  // `workers` divide long payloads among them. Errors: kCorrupt. Any thread may call it.
  static Status check_chunks(Bytes payload, std::span<const std::uint32_t> ends,
                             std::span<const std::uint32_t> sums, std::uint32_t first,
                             Workers* workers = nullptr);

 private:
  FrameReader() = default;
  Status read_head(Bytes bytes, std::uint64_t bytes_there);
  Status read_header();
  Status check_segments(std::uint64_t payload_bytes) const;

  Bytes head_;
  FrameHeader header_;
  std::uint8_t version_ = kFrameVersion;
  std::uint64_t frame_bytes_ = 0;
  std::uint64_t header_bytes_ = 0;
  std::uint32_t segment_count_ = 0;
  std::uint32_t segments_left_ = 0;
  std::uint32_t next_chunk_ = 0;
  Bytes segments_;                   // not yet read
  Bytes payload_;                    // of these
  std::vector<std::uint32_t> ends_;  // of next()
  std::vector<std::uint32_t> sums_;
};

}  // namespace deltawire
