// For tests of frames: a small good one, and the means to spoil it behind its checksum.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "deltawire/frame.h"
#include "wire/frame_builder.h"
#include "wire/frame_layout.h"

namespace deltawire::testing {

using Frame = std::vector<std::byte>;

inline FrameHeader some_header() {
  FrameHeader header;
  header.codec = 3;
  header.params_hash = 0x1122334455667788u;
  header.spec_hash = 0x99AABBCCDDEEFF00u;
  header.step = 7;
  header.epoch = 2;
  header.seq = 1;
  header.rank = 3;
  header.world = 4;
  header.slice = 9;
  return header;
}

// Two segments: the first with two chunks (3 and 2 bytes), the second, raw, with one (4 bytes).
inline Frame small_frame() {
  Frame payload;
  for (int i = 0; i < 9; ++i) payload.push_back(static_cast<std::byte>(i * 17));
  FrameBuilder builder(some_header());
  const std::array<std::uint32_t, 2> first_ends{3, 5};
  builder.add_segment({0, false, 40960, 50000, 0x3F800000}, Bytes(payload).first(5), first_ends);
  const std::array<std::uint32_t, 1> second_ends{4};
  builder.add_segment({1, true, 0, 1, 0}, Bytes(payload).subspan(5), second_ends);
  Frame frame = builder.finish();
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

// Bare segments, nothing and not finite, between a coded one and a raw one of 3 bytes each; or alone.
inline Frame bare_frame(bool alone) {
  const Frame payload(6, std::byte{7});
  FrameBuilder builder(some_header());
  const std::array<std::uint32_t, 1> ends{3};
  Segment nothing{1, false, 0, 70000};
  nothing.state = SegmentState::kNothing;
  Segment not_finite{2, false, 320, UINT32_MAX - 320};
  not_finite.state = SegmentState::kNotFinite;
  if (!alone) builder.add_segment({0, false, 0, 10, 5}, Bytes(payload).first(3), ends);
  builder.add_bare(nothing);
  builder.add_bare(not_finite);
  if (!alone) builder.add_segment({3, true, 0, 10, 6}, Bytes(payload).first(3), ends);
  Frame frame = builder.finish();
  if (!alone) frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

// Header, index and all segments: what a receiver does.
inline Status read_all(Bytes bytes) {
  Result<FrameReader> reader = FrameReader::open(bytes);
  if (!reader) return forward_error(reader);
  while (reader->segments_left() > 0) {
    if (const auto view = reader->next(); !view) return forward_error(view);
  }
  if (reader->frame_bytes() != bytes.size()) return fail(ErrorCode::kCorrupt, "trailing bytes");
  return {};
}

inline void repair_crc(Frame& frame) {
  const Bytes all(frame);
  const std::uint64_t header = load_le<std::uint32_t>(frame.data() + frame_layout::kHeaderBytesAt);
  if (header < kFrameHeaderBytes || header > frame.size()) return;
  const std::uint32_t crc =
      crc32c(all.subspan(kFrameHeaderBytes, header - kFrameHeaderBytes), crc32c(all.first(60)));
  store_le<std::uint32_t>(frame.data() + frame_layout::kCrcAt, crc);
}

}  // namespace deltawire::testing
