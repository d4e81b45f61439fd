// The kernels of logquant: what a faster implementation replaces. Each is a pure function of its arguments,
// and every implementation must give the reference's bytes, residuals and faults exactly.
//
// REQUIRES of all: the calling thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/float_bits.h"
#include "codecs/kernels/chunk_bytes.h"
#include "codecs/kernels/pairs.h"
#include "codecs/target_id.h"

namespace deltawire::logquant {

inline constexpr std::uint32_t kChunkPairs = 16384;
inline constexpr unsigned kMaxBits = 8;  // of a level
inline constexpr std::uint64_t kMaxElements = 0xFFFFFFFF;

inline constexpr std::uint32_t kCountBytes = 2;  // u16: pairs, and kDenseBit
inline constexpr std::uint32_t kDenseBit = 0x8000;
inline constexpr std::uint32_t kKeyBytes = 4;
inline constexpr std::uint32_t kDenseHeadBytes = 8;  // u32 first key, u32 elements

// Logarithms are counted in steps, one or two an octave; h steps stand for 2^(h / steps).
struct Grid {
  int steps = 1;
  unsigned bits = 4;  // of a level: level 0 is zero, 2^bits - 1 the top
  int top = 0;        // steps, of the top level

  [[gnu::always_inline]] int top_level() const noexcept { return (1 << bits) - 1; }
};

// The steps of the smallest float32 and of the largest power that is one.
[[gnu::always_inline]] inline int least_step(int steps) noexcept {
  return -149 * steps;
}
[[gnu::always_inline]] inline int largest_step(int steps) noexcept {
  return steps == 1 ? 127 : 255;
}

// How the top goes on the wire: 0 is a part without pairs.
inline constexpr int kTopBias = 299;

inline constexpr unsigned kMantissaBitsOfDouble = 52;
inline constexpr int kBiasOfDouble = 1023;

// The step nearest to log2 |x|, halves of steps being irrational. A mantissa of 23 bits is compared with
// 2^(1/2), or with 2^(1/4) and 2^(3/4), rounded down: it is equal to none of them. REQUIRES: not 0, finite.
[[gnu::always_inline]] inline int nearest_step(std::uint32_t magnitude, int steps) noexcept {
  constexpr std::uint32_t kHalf = 0x3504F3;
  constexpr std::uint32_t kQuarter = 0x1837F0;
  constexpr std::uint32_t kThreeQuarters = 0x5744FC;
  // As float64 a subnormal has an exponent of its own, too.
  const auto wide = bit_cast<std::uint64_t>(static_cast<double>(bit_cast<float>(magnitude)));
  const int exponent = static_cast<int>(wide >> kMantissaBitsOfDouble) - kBiasOfDouble;
  const auto mantissa = static_cast<std::uint32_t>(wide >> (kMantissaBitsOfDouble - 23)) & 0x7FFFFF;
  if (steps == 1) return exponent + (mantissa > kHalf ? 1 : 0);
  return 2 * exponent + (mantissa > kQuarter ? 1 : 0) + (mantissa > kThreeQuarters ? 1 : 0);
}

// What h steps stand for, rounded to float32 once.
[[gnu::always_inline]] inline float step_value(int h, int steps) noexcept {
  constexpr double kRootOfTwo = 0x1.6a09e667f3bcdp+0;
  const int whole = steps == 1 ? h : h >> 1;
  const auto power =
      bit_cast<double>(static_cast<std::uint64_t>(whole + kBiasOfDouble) << kMantissaBitsOfDouble);
  return static_cast<float>(steps == 2 && (h & 1) != 0 ? kRootOfTwo * power : power);
}

// What a level stands for. REQUIRES: not 0.
[[gnu::always_inline]] inline float level_value(const Grid& grid, int level) noexcept {
  return step_value(grid.top - (grid.top_level() - level), grid.steps);
}

// Whether the lowest level is a float32 above 0.
[[gnu::always_inline]] inline int least_level(const Grid& grid) noexcept {
  const int lowest = grid.top_level() - (grid.top - least_step(grid.steps));
  return lowest > 1 ? lowest : 1;
}

// A chunk's pairs on their way to the bytes, in arrays of kChunkPairs. A number is a level, and above its
// bits the sign.
struct Staging {
  std::uint32_t* keys = nullptr;
  std::uint16_t* numbers = nullptr;
  std::uint32_t pairs = 0;
};

// What a decoder found wrong with a chunk.
enum class Fault : std::uint8_t {
  kNone,
  kTruncated,      // the bytes end before the chunk does
  kTrailingBytes,  // bytes follow the last number
  kPairCount,      // more than kChunkPairs, too few in a chunk that isn't the last, or an empty chunk among
                   // others
  kForm,           // keys where their absence is shorter, or the other way round
  kKey,            // a key that isn't above the one before it, or not below the dimension
  kLevel,          // a level that stands for 0, or a zero with a sign
  kCount,          // elements without keys that aren't as many as stated, or that begin or end with a zero
  kPadding,        // a set bit after the last number
  kNoRoom,         // more pairs than the receiver's slot has room for
};

// What a chunk's first bytes say.
struct Head {
  std::uint32_t pairs = 0;
  bool dense = false;
  std::uint32_t first = 0;        // dense alone
  std::uint32_t elements = 0;     // numbers: those of pairs, or dense ones
  std::uint32_t bytes = 0;        // before the numbers
  std::uint32_t value_bytes = 0;  // of the numbers
};

// Whether `elements` numbers are no longer than those of `pairs` pairs and their keys.
[[gnu::always_inline]] inline bool is_dense_shorter(std::uint64_t pairs, std::uint64_t elements,
                                                    unsigned bits) noexcept {
  return kDenseHeadBytes + (elements * (bits + 1) + 7) / 8 <=
         kKeyBytes * pairs + (pairs * (bits + 1) + 7) / 8;
}

struct Kernels {
  // The bits of the largest |x|, x = in + residual; at least kInfinityBits if any x isn't finite.
  std::uint32_t (*largest)(const PairInput& input);

  // The pairs of the next chunk: from value `at` on those that have a level, up to kChunkPairs; moves `at`
  // behind the last value that was looked at. With a residual, x less what was sent is left of them all.
  void (*collect)(const PairInput& input, const Grid& grid, std::uint64_t& at, Staging& staging);

  // Writes a chunk and returns its bytes, which sizes() has made room for.
  std::uint32_t (*write)(const Staging& chunk, unsigned bits, std::byte* out);

  // Reads and checks a chunk's head: of chunks before the last, which are full, and of the last, which has a
  // pair unless it is the first, too.
  Fault (*read_head)(const ChunkBytes& chunk, bool is_last, unsigned bits, Head& head);

  // Decodes a chunk with pairs. Reads inside the chunk alone, writes inside the target alone; on a fault what
  // the target holds is unspecified. REQUIRES: read_head().
  Fault (*decode)(const ChunkBytes& chunk, const Head& head, const Grid& grid, PairTarget& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::logquant
