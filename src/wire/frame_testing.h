// For tests of frames: a small good one, frames written byte by byte, and the means to spoil them behind
// their checksums.
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
  return {.message = {.step = 7, .rank = 3, .world = 4, .bucket = 9, .stage = 2},
          .params_hash = 0x55667788u,
          .layout_hash = 0xDDEEFF00u,
          .seq = 1};
}

// Segments of 2 chunks (3 and 2 bytes) and of one (4 bytes).
inline Frame small_frame() {
  Frame payload;
  for (int i = 0; i < 9; ++i) payload.push_back(static_cast<std::byte>(i * 17));
  Frame frame;
  FrameBuilder builder(some_header(), frame);
  const std::array<std::uint32_t, 2> first_ends{3, 5};
  builder.add_segment({.part = 0, .begin = 40960, .count = 50000, .codec = 3, .scalar = 0x3F800000},
                      Bytes(payload).first(5), first_ends);
  const std::array<std::uint32_t, 1> second_ends{4};
  builder.add_segment({.part = 1, .count = 1, .codec = 1}, Bytes(payload).subspan(5), second_ends);
  builder.finish();
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

// Bare segments, nothing and not finite, between two coded ones of 3 bytes each; or alone.
inline Frame bare_frame(bool alone) {
  const Frame payload(6, std::byte{7});
  Frame frame;
  FrameBuilder builder(some_header(), frame);
  const std::array<std::uint32_t, 1> ends{3};
  const Segment first{.part = 0, .count = 10, .codec = 3, .scalar = 5};
  const Segment last{.part = 3, .count = 10, .codec = 1};
  if (!alone) builder.add_segment(first, Bytes(payload).first(3), ends);
  builder.add_bare({.part = 1, .count = 70000, .state = SegmentState::kNothing});
  builder.add_bare({.part = 2, .count = UINT32_MAX, .state = SegmentState::kNotFinite});
  if (!alone) builder.add_segment(last, Bytes(payload).first(3), ends);
  builder.finish();
  if (!alone) frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

// Head and all segments: what a receiver does.
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
  using namespace frame_layout;
  const Bytes all(frame);
  const std::uint64_t head = load_le<std::uint32_t>(frame.data() + kHeadBytesAt);
  if (head < kParamsHashAt || head > frame.size()) return;
  store_le<std::uint32_t>(frame.data() + kCrcAt, crc32c(all.subspan(kParamsHashAt, head - kParamsHashAt),
                                                        crc32c(all.first(kCrcAt))));
}

// As docs/reference/format.md draws it, without the library's builder: the bytes behind offset 28 as they
// stand here, and a payload of so many zeros, one chunk after another.
struct HandMade {
  unsigned version = 1;
  unsigned flags = 0;
  std::vector<unsigned> fields{7, 9, 2, 1, 3, 4};  // step, bucket, stage, seq, rank, world
  unsigned segments = 1;
  std::vector<unsigned> segment{};  // a chunk's checksum stands here as kCrc
  std::uint64_t payload = 0;

  static constexpr unsigned kCrc = 256;

  Frame frame(std::vector<std::uint32_t> chunk_bytes = {}) const {
    using namespace frame_layout;
    Frame out(kFixedBytes);
    for (const unsigned byte : fields) out.push_back(static_cast<std::byte>(byte));
    std::uint32_t chunk = 0;
    for (const unsigned byte : segment) {
      if (byte < kCrc) {
        out.push_back(static_cast<std::byte>(byte));
        continue;
      }
      out.resize(out.size() + 4);
      const Frame zeros(chunk < chunk_bytes.size() ? chunk_bytes[chunk] : 0);
      store_le<std::uint32_t>(out.data() + out.size() - 4, crc32c(zeros, chunk));
      ++chunk;
    }
    std::byte* at = out.data();
    store_le<std::uint32_t>(at, 0x46575744);
    at[kVersionAt] = static_cast<std::byte>(version);
    at[kFlagsAt] = static_cast<std::byte>(flags);
    store_le<std::uint16_t>(at + kSegmentsAt, static_cast<std::uint16_t>(segments));
    store_le<std::uint32_t>(at + kHeadBytesAt, static_cast<std::uint32_t>(out.size()));
    store_le<std::uint32_t>(at + kFrameBytesAt, static_cast<std::uint32_t>(out.size() + payload));
    out.resize(out.size() + payload);
    repair_crc(out);
    return out;
  }
};

}  // namespace deltawire::testing
