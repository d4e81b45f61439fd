// Parses frames. Only this code reads an untrusted header: nothing is used before it is checked, and the
// head's checksum is verified first.
#include <bit>
#include <cassert>
#include <limits>
#include <optional>
#include <string>

#include "base/crc32c.h"
#include "base/errors.h"
#include "base/format_version.h"
#include "base/little_endian.h"
#include "base/varint.h"
#include "deltawire/frame.h"
#include "wire/frame_layout.h"

namespace deltawire {
namespace {

using namespace frame_layout;

constexpr auto kOne = std::bit_cast<std::uint32_t>(1.0F);
constexpr auto kInfinity = std::bit_cast<std::uint32_t>(std::numeric_limits<float>::infinity());

Status check_start(Bytes bytes) {
  if (bytes.size() < kFixedBytes) {
    return truncated("frame: " + std::to_string(bytes.size()) + " bytes, fewer than any frame has (" +
                     std::to_string(kFixedBytes) + ")");
  }
  if (load_le<std::uint32_t>(bytes.data() + kMagicAt) != kFrameMagic) {
    return corrupt("frame: wrong magic number; these bytes are not a deltawire frame");
  }
  const auto version = std::to_integer<std::uint8_t>(bytes[kVersionAt]);
  RETURN_IF_ERROR(check_format_version("frame", version, {kFrameVersion, kNewestFrameVersion}));
  const std::uint64_t head_bytes = load_le<std::uint32_t>(bytes.data() + kHeadBytesAt);
  if (head_bytes < kFixedBytes) return corrupt("frame: its head has no legal length");
  if (head_bytes > bytes.size()) return truncated("frame: ends within its head");
  const Bytes head = bytes.first(head_bytes);
  if (crc32c(head.subspan(kParamsHashAt), crc32c(head.first(kCrcAt))) !=
      load_le<std::uint32_t>(head.data() + kCrcAt)) {
    return corrupt("frame: the head's checksum is wrong; the bytes changed on the way");
  }
  return {};
}

// Reads fields from the front of a head. After an illegal one, ok() is false, and all fields are 0.
class Fields {
 public:
  explicit Fields(Bytes bytes) noexcept : rest_(bytes) {}

  template <class Number>
  Number number() noexcept {
    const auto taken = ok_ ? take_varint(rest_, std::numeric_limits<Number>::max()) : std::nullopt;
    require(taken.has_value());
    return static_cast<Number>(taken.value_or(0));
  }

  template <class Number>
  Number fixed() noexcept {
    if (!require(rest_.size() >= sizeof(Number))) return 0;
    const auto value = load_le<Number>(rest_.data());
    rest_ = rest_.subspan(sizeof(Number));
    return value;
  }

  bool require(bool rule) noexcept { return ok_ = ok_ && rule; }
  bool ok() const noexcept { return ok_; }
  Bytes rest() const noexcept { return rest_; }

 private:
  Bytes rest_;
  bool ok_ = true;
};

struct SegmentFields {
  Segment segment;
  std::uint32_t chunks = 0;
};

// A segment, up to its chunks.
SegmentFields read_segment(Fields& fields, unsigned version) noexcept {
  SegmentFields read;
  Segment& segment = read.segment;
  const unsigned tag = fields.fixed<std::uint8_t>();
  const unsigned state = tag & kStateBits;
  const unsigned scalars = (tag >> kScalarsShift) & kScalarsBits;
  const bool has_parts = version > kFrameVersion && (tag & kPartsBit) != 0;
  fields.require(state <= static_cast<unsigned>(SegmentState::kNotFinite) && scalars <= 2 &&
                 (tag < 2 * kBeginBit || (has_parts && tag == kPartsBit)) && (state == 0 || tag == state));
  segment.state = static_cast<SegmentState>(state);
  segment.part = fields.number<std::uint32_t>();
  if (has_parts) {
    segment.parts = fields.number<std::uint32_t>();
    fields.require(segment.parts > 1);
  }
  if ((tag & kBeginBit) != 0) {
    segment.begin = fields.number<std::uint32_t>();
    fields.require(segment.begin > 0);
  }
  segment.count = fields.number<std::uint32_t>();
  fields.require(segment.count >= segment.parts && segment.count <= UINT32_MAX - segment.begin);
  if (segment.state != SegmentState::kCoded) return read;
  segment.codec = fields.number<std::uint16_t>();
  if (scalars > 0) segment.scalar = fields.fixed<std::uint32_t>();
  if (scalars > 1) segment.scalar2 = fields.fixed<std::uint32_t>();
  fields.require(scalars == 0 || (scalars == 1 ? segment.scalar : segment.scalar2) != 0);
  read.chunks = fields.number<std::uint32_t>();
  fields.require(segment.codec > 0 && read.chunks > 0);
  return read;
}

struct ChunkEntry {
  std::uint32_t bytes = 0;
  std::uint32_t crc = 0;
};

ChunkEntry read_chunk(Fields& fields) noexcept {
  ChunkEntry chunk;
  chunk.bytes = fields.number<std::uint32_t>();
  chunk.crc = fields.fixed<std::uint32_t>();
  fields.require(chunk.bytes > 0);
  return chunk;
}

}  // namespace

Status FrameReader::read_header() {
  const std::byte* at = head_.data();
  const auto flags = std::to_integer<unsigned>(at[kFlagsAt]);
  header_.params_hash = load_le<std::uint32_t>(at + kParamsHashAt);
  header_.layout_hash = load_le<std::uint32_t>(at + kLayoutHashAt);
  Fields fields(head_.subspan(kFixedBytes));
  MessageId& message = header_.message;
  if (flags == kScaleFlag) {
    // Compared as bits, because the caller's floating-point mode may treat subnormals as zeros.
    const auto bits = fields.fixed<std::uint32_t>();
    fields.require(bits > 0 && bits < kInfinity && bits != kOne);
    message.scale = std::bit_cast<float>(bits);
  }
  message.step = fields.number<std::uint64_t>();
  message.bucket = fields.number<std::uint16_t>();
  message.stage = fields.number<std::uint16_t>();
  header_.seq = fields.number<std::uint32_t>();
  message.rank = fields.number<std::uint16_t>();
  message.world = fields.number<std::uint16_t>();
  if (!fields.require(message.rank < message.world)) {
    return corrupt("frame: its header has a field that is not legal");
  }
  segments_ = fields.rest();
  header_bytes_ = head_.size() - segments_.size();
  return {};
}

Status FrameReader::check_segments(std::uint64_t payload_bytes) const {
  Fields fields(segments_);
  std::uint64_t chunk_bytes = 0;  // no wrap: fewer than 2^30 chunks, each of 32 bits
  for (std::uint32_t i = 0; i < segment_count_; ++i) {
    const std::uint32_t chunks = read_segment(fields, version_).chunks;
    for (std::uint32_t k = 0; k < chunks && fields.ok(); ++k) chunk_bytes += read_chunk(fields).bytes;
    if (!fields.ok()) {
      return corrupt("frame: segment " + std::to_string(i) + " has a field that is not legal");
    }
  }
  if (!fields.rest().empty()) return corrupt("frame: bytes follow the last segment");
  if (chunk_bytes != payload_bytes) return corrupt("frame: chunks do not fill the payload");
  return {};
}

// `bytes` begin with the head; `bytes_there` is how many bytes of the frame there are.
Status FrameReader::read_head(Bytes bytes, std::uint64_t bytes_there) {
  RETURN_IF_ERROR(check_start(bytes));
  const std::byte* at = bytes.data();
  version_ = std::to_integer<std::uint8_t>(at[kVersionAt]);
  const auto flags = std::to_integer<unsigned>(at[kFlagsAt]);
  if (flags != 0 && flags != kScaleFlag) return corrupt("frame: unknown flags are set");
  segment_count_ = segments_left_ = load_le<std::uint16_t>(at + kSegmentsAt);
  head_ = bytes.first(load_le<std::uint32_t>(at + kHeadBytesAt));
  frame_bytes_ = load_le<std::uint32_t>(at + kFrameBytesAt);
  if (segment_count_ == 0) return corrupt("frame: no segments");
  if (frame_bytes_ > kMaxFrameBytes) {
    return fail(ErrorCode::kLimit, "frame: " + std::to_string(frame_bytes_) + " bytes exceed the limit of " +
                                       std::to_string(kMaxFrameBytes));
  }
  RETURN_IF_ERROR(read_header());
  // If frame_bytes is less than the head's bytes, the difference wraps, and no sum of chunks can equal it.
  RETURN_IF_ERROR(check_segments(frame_bytes_ - head_.size()));
  if (frame_bytes_ > bytes_there) {
    return truncated("frame: " + std::to_string(bytes_there) + " of " + std::to_string(frame_bytes_) +
                     " bytes are there");
  }
  return {};
}

Result<FrameReader> FrameReader::open(Bytes bytes) {
  FrameReader reader;
  RETURN_IF_ERROR(reader.read_head(bytes, bytes.size()));
  reader.payload_ = bytes.first(reader.frame_bytes_).subspan(reader.head_.size());
  return reader;
}

Result<FrameReader> FrameReader::open(Bytes head, Bytes payload) {
  FrameReader reader;
  const std::uint64_t bytes = head.size() + payload.size();
  RETURN_IF_ERROR(reader.read_head(head, bytes));
  if (reader.head_.size() != head.size() || reader.frame_bytes_ != bytes) {
    return corrupt("frame: its head and its payload are not two pieces");
  }
  reader.payload_ = payload;
  return reader;
}

UncheckedSegment FrameReader::next_unchecked(std::vector<std::uint32_t>& ends,
                                             std::vector<std::uint32_t>& sums) {
  assert(segments_left_ > 0);
  Fields fields(segments_);
  const SegmentFields read = read_segment(fields, version_);
  UncheckedSegment next{
      .segment = read.segment, .payload = {}, .first_chunk = next_chunk_, .chunks = read.chunks};
  --segments_left_;
  std::uint32_t end = 0;
  for (std::uint32_t k = 0; k < read.chunks; ++k) {
    const ChunkEntry chunk = read_chunk(fields);
    ends.push_back(end += chunk.bytes);
    sums.push_back(chunk.crc);
  }
  next_chunk_ += read.chunks;
  segments_ = fields.rest();
  assert(fields.ok() && end <= payload_.size());
  next.payload = payload_.first(end);
  payload_ = payload_.subspan(end);
  return next;
}

Status FrameReader::check_chunks(Bytes payload, std::span<const std::uint32_t> ends,
                                 std::span<const std::uint32_t> sums, std::uint32_t first, Workers* workers) {
  assert(ends.size() == sums.size());
  assert((ends.empty() ? 0 : ends.back()) <= payload.size());
  std::uint32_t begin = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const std::uint32_t number = first + static_cast<std::uint32_t>(i);
    if (crc32c_shared(payload.subspan(begin, ends[i] - begin), number, workers) != sums[i]) {
      return corrupt("frame: the checksum of chunk " + std::to_string(number) +
                     " is wrong; the bytes changed on the way");
    }
    begin = ends[i];
  }
  return {};
}

Result<SegmentView> FrameReader::next() {
  ends_.clear();
  sums_.clear();
  const UncheckedSegment read = next_unchecked(ends_, sums_);
  RETURN_IF_ERROR(check_chunks(read.payload, ends_, sums_, read.first_chunk));
  return SegmentView{read.segment, {read.payload, ends_, read.segment.scalar, read.segment.scalar2}};
}

}  // namespace deltawire
