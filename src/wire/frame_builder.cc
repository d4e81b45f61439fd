#include "wire/frame_builder.h"

#include <bit>

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

// Trailing zeros are left out.
unsigned scalars_of(const Segment& segment) noexcept {
  if (segment.scalar2 != 0) return 2;
  return segment.scalar != 0 ? 1 : 0;
}

void append_segment(const Segment& segment, std::vector<std::byte>& out) {
  unsigned tag = static_cast<unsigned>(segment.state) | scalars_of(segment) << kScalarsShift;
  if (segment.begin != 0) tag |= kBeginBit;
  out.push_back(static_cast<std::byte>(tag));
  append_varint(out, segment.part);
  if (segment.begin != 0) append_varint(out, segment.begin);
  append_varint(out, segment.count);
}

}  // namespace

void FrameBuilder::add_segment(const Segment& segment, Bytes payload, std::span<const std::uint32_t> ends) {
  append_segment(segment, segments_);
  append_varint(segments_, segment.codec);
  const unsigned scalars = scalars_of(segment);
  if (scalars > 0) append_u32(segments_, segment.scalar);
  if (scalars > 1) append_u32(segments_, segment.scalar2);
  append_varint(segments_, ends.size());
  std::uint32_t begin = 0;
  for (const std::uint32_t end : ends) {
    append_varint(segments_, end - begin);
    // Seeded with the chunk's number, so that swapped chunks of equal length are found.
    append_u32(segments_, crc32c(payload.subspan(begin, end - begin), chunk_count_++));
    begin = end;
  }
  ++segment_count_;
  payload_bytes_ += payload.size();
}

void FrameBuilder::add_bare(const Segment& segment) {
  append_segment(segment, segments_);
  ++segment_count_;
}

std::vector<std::byte> FrameBuilder::finish() const {
  const MessageId& message = header_.message;
  const bool scaled = message.scale != 1.0F;
  std::vector<std::byte> head;
  head.reserve(kFrameHeaderBytesMax + segments_.size());
  head.resize(kFixedBytes);
  if (scaled) append_u32(head, std::bit_cast<std::uint32_t>(message.scale));
  append_varint(head, message.step);
  append_varint(head, message.bucket);
  append_varint(head, message.stage);
  append_varint(head, header_.seq);
  append_varint(head, message.rank);
  append_varint(head, message.world);
  head.insert(head.end(), segments_.begin(), segments_.end());
  std::byte* at = head.data();
  store_le<std::uint32_t>(at + kMagicAt, kFrameMagic);
  at[kVersionAt] = static_cast<std::byte>(kFrameVersion);
  at[kFlagsAt] = static_cast<std::byte>(scaled ? kScaleFlag : 0);
  store_le<std::uint16_t>(at + kSegmentsAt, static_cast<std::uint16_t>(segment_count_));
  store_le<std::uint32_t>(at + kHeadBytesAt, static_cast<std::uint32_t>(head.size()));
  store_le<std::uint32_t>(at + kFrameBytesAt, static_cast<std::uint32_t>(head.size() + payload_bytes_));
  store_le<std::uint32_t>(at + kParamsHashAt, header_.params_hash);
  store_le<std::uint32_t>(at + kLayoutHashAt, header_.layout_hash);
  const Bytes all(head);
  store_le<std::uint32_t>(at + kCrcAt, crc32c(all.subspan(kParamsHashAt), crc32c(all.first(kCrcAt))));
  return head;
}

}  // namespace deltawire
