// Byte offsets of the frame, shared by builder and reader. docs/format.md draws it.
#pragma once

#include <cstdint>

namespace deltawire::frame_layout {

inline constexpr std::uint64_t kMagicAt = 0;
inline constexpr std::uint64_t kVersionAt = 4;
inline constexpr std::uint64_t kFlagsAt = 5;  // bit 0 is kept for keyed frames; all must be 0
inline constexpr std::uint64_t kCodecAt = 6;
inline constexpr std::uint64_t kHeaderBytesAt = 8;
inline constexpr std::uint64_t kFrameBytesAt = 12;
inline constexpr std::uint64_t kParamsHashAt = 16;
inline constexpr std::uint64_t kSpecHashAt = 24;
inline constexpr std::uint64_t kStepAt = 32;
inline constexpr std::uint64_t kEpochAt = 40;
inline constexpr std::uint64_t kSeqAt = 44;
inline constexpr std::uint64_t kRankAt = 48;
inline constexpr std::uint64_t kWorldAt = 50;
inline constexpr std::uint64_t kSliceAt = 52;
inline constexpr std::uint64_t kSegmentsAt = 54;
inline constexpr std::uint64_t kChunksAt = 56;
inline constexpr std::uint64_t kCrcAt = 60;

// Within a segment.
inline constexpr std::uint64_t kTensorAt = 0;
inline constexpr std::uint64_t kFirstAt = 4;
inline constexpr std::uint64_t kCountAt = 8;
inline constexpr std::uint64_t kScalarAt = 12;

// The top bit of a segment's tensor index marks raw fp32, that of a chunk's end the last chunk of its
// segment: neither number ever needs the bit, and a field of its own would cost 8 bytes a tensor.
inline constexpr std::uint32_t kTopBit = 0x80000000u;

// The next bit of the tensor index marks a segment without chunks, whose scalar then says what it stands for.
inline constexpr std::uint32_t kBareBit = 0x40000000u;
inline constexpr std::uint32_t kNothingScalar = 0;
inline constexpr std::uint32_t kNotFiniteScalar = 1;

}  // namespace deltawire::frame_layout
