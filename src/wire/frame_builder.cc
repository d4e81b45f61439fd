#include "wire/frame_builder.h"

#include <bit>
#include <cassert>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/varint.h"
#include "wire/frame_layout.h"

namespace deltawire {

using namespace frame_layout;

namespace {

void append_u32(std::vector<std::byte>& out, std::uint32_t number) {
  out.resize(out.size() + 4);
  store_le(out.data() + out.size() - 4, number);
}

// How many scalars to write: trailing zeros are omitted.
unsigned scalars_of(const Segment& segment) noexcept {
  if (segment.scalar2 != 0) return 2;
  return segment.scalar != 0 ? 1 : 0;
}

void append_segment(const Segment& segment, std::vector<std::byte>& out) {
  unsigned tag = static_cast<unsigned>(segment.state) | scalars_of(segment) << kScalarsShift;
  if (segment.begin != 0) tag |= kBeginBit;
  if (segment.parts > 1) tag |= kPartsBit;
  out.push_back(static_cast<std::byte>(tag));
  append_varint(out, segment.part);
  if (segment.parts > 1) append_varint(out, segment.parts);
  if (segment.begin != 0) append_varint(out, segment.begin);
  append_varint(out, segment.count);
}

}  // namespace

FrameBuilder::FrameBuilder(const FrameHeader& header, std::vector<std::byte>& out)
    : out_(&out), begin_(out.size()) {
  const MessageId& message = header.message;
  assert(message.scale > 0.0F);
  const bool scaled = message.scale != 1.0F;
  out.resize(begin_ + kFixedBytes);
  std::byte* at = out.data() + begin_;
  store_le<std::uint32_t>(at + kMagicAt, kFrameMagic);
  at[kFlagsAt] = static_cast<std::byte>(scaled ? kScaleFlag : 0);
  store_le<std::uint32_t>(at + kParamsHashAt, header.params_hash);
  store_le<std::uint32_t>(at + kLayoutHashAt, header.layout_hash);
  if (scaled) append_u32(out, std::bit_cast<std::uint32_t>(message.scale));
  append_varint(out, message.step);
  append_varint(out, message.bucket);
  append_varint(out, message.stage);
  append_varint(out, header.seq);
  append_varint(out, message.rank);
  append_varint(out, message.world);
}

void FrameBuilder::add_segment(const Segment& segment, Bytes payload, std::span<const std::uint32_t> ends,
                               std::uint32_t start, std::span<const std::uint32_t> sums) {
  std::vector<std::byte>& out = *out_;
  assert(segment.state == SegmentState::kCoded && segment.codec > 0 && segment.count >= segment.parts);
  assert(!ends.empty() && ends.back() > start && (sums.empty() || sums.size() == ends.size()));
  assert(payload.empty() ? !sums.empty() : ends.back() == start + payload.size());
  if (segment.parts > 1) need_version(2);
  append_segment(segment, out);
  append_varint(out, segment.codec);
  const unsigned scalars = scalars_of(segment);
  if (scalars > 0) append_u32(out, segment.scalar);
  if (scalars > 1) append_u32(out, segment.scalar2);
  append_varint(out, ends.size());
  std::uint32_t begin = start;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    assert(ends[i] > begin);
    const std::uint32_t bytes = ends[i] - begin;
    // Seeded with the chunk's number, so that swapped chunks of equal length are detected.
    const std::uint32_t seed = chunk_count_++;
    append_varint(out, bytes);
    append_u32(out, sums.empty() ? crc32c(payload.subspan(begin - start, bytes), seed)
                                 : crc32c_joined(seed, sums[i], bytes));
    begin = ends[i];
  }
  ++segment_count_;
  payload_bytes_ += ends.back() - start;
}

void FrameBuilder::add_bare(const Segment& segment) {
  assert(segment.state != SegmentState::kCoded && segment.count > 0 && segment.parts == 1);
  assert(segment.codec == 0 && segment.scalar == 0 && segment.scalar2 == 0);
  append_segment(segment, *out_);
  ++segment_count_;
}

std::uint64_t FrameBuilder::finish() noexcept {
  const Bytes head = Bytes(*out_).subspan(begin_);
  assert(segment_count_ <= UINT16_MAX);
  assert(head.size() + payload_bytes_ <= kMaxFrameBytes);
  std::byte* at = out_->data() + begin_;
  at[kVersionAt] = static_cast<std::byte>(version_);
  store_le<std::uint16_t>(at + kSegmentsAt, static_cast<std::uint16_t>(segment_count_));
  store_le<std::uint32_t>(at + kHeadBytesAt, static_cast<std::uint32_t>(head.size()));
  store_le<std::uint32_t>(at + kFrameBytesAt, static_cast<std::uint32_t>(head.size() + payload_bytes_));
  store_le<std::uint32_t>(at + kCrcAt, crc32c(head.subspan(kParamsHashAt), crc32c(head.first(kCrcAt))));
  return head.size();
}

}  // namespace deltawire
