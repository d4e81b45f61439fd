// Byte offsets and bits of the frame, shared by builder and reader. docs/reference/format.md draws it.
#pragma once

#include <cstdint>

namespace deltawire::frame_layout {

inline constexpr std::uint64_t kMagicAt = 0;
inline constexpr std::uint64_t kVersionAt = 4;
inline constexpr std::uint64_t kFlagsAt = 5;
inline constexpr std::uint64_t kSegmentsAt = 6;
inline constexpr std::uint64_t kHeadBytesAt = 8;
inline constexpr std::uint64_t kFrameBytesAt = 12;
inline constexpr std::uint64_t kCrcAt = 16;
inline constexpr std::uint64_t kParamsHashAt = 20;
inline constexpr std::uint64_t kLayoutHashAt = 24;
inline constexpr std::uint64_t kFixedBytes = 28;  // then the scale, if there is one, and numbers

// Flags. Bit 0 is reserved for keyed frames.
inline constexpr unsigned kScaleFlag = 2;

// The first byte of a segment.
inline constexpr unsigned kStateBits = 3;
inline constexpr unsigned kScalarsShift = 2;
inline constexpr unsigned kScalarsBits = 3;
inline constexpr unsigned kBeginBit = 16;
inline constexpr unsigned kPartsBit = 32;  // version 2

}  // namespace deltawire::frame_layout
