// The kernels of sketchml: what a faster implementation replaces. Each is a pure function of its arguments,
// and every implementation must give the reference's bytes, residuals and faults exactly.
//
// REQUIRES of all: the calling thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/float_bits.h"
#include "base/random.h"
#include "codecs/kernels/chunk_bytes.h"
#include "codecs/kernels/pairs.h"
#include "codecs/target_id.h"

namespace deltawire::sketchml {

inline constexpr std::uint32_t kChunkPairs = 65536;
inline constexpr std::uint64_t kMaxElements = 0xFFFFFFFF;
inline constexpr std::uint32_t kMaxBuckets = 256;  // of one sign
inline constexpr std::uint32_t kMaxGroups = 16;    // of one sign
inline constexpr std::uint32_t kMaxRows = 4;
inline constexpr std::uint32_t kSigns = 2;  // values above 0, values below

inline constexpr std::uint32_t kCountBytes = 4;      // u32 pairs: all of a chunk without
inline constexpr std::uint32_t kHeadBytes = 12;      // and u32 first key, u16 buckets of either sign
inline constexpr std::uint32_t kMeanBytes = 4;       // f32
inline constexpr std::uint32_t kGroupHeadBytes = 4;  // u32 keys
inline constexpr unsigned kFlagBits = 2;             // before each gap: its bytes less one

// What the spec says, and the seed of a part's hash functions.
struct Rules {
  std::uint32_t buckets = 128;  // of one sign, at most
  std::uint32_t groups = 4;     // of one sign, at most
  std::uint32_t rows = 2;       // of a table
  double columns = 0.3;         // of a table, by its keys
  CounterRng hashes{0};
};

// Columns of the table of so many keys. The product is exact: of 24 bits and 17.
[[gnu::always_inline]] inline std::uint32_t columns_for(const Rules& rules, std::uint32_t keys) noexcept {
  const double product = rules.columns * keys;
  const auto whole = static_cast<std::uint32_t>(product);
  return whole < product ? whole + 1 : whole;
}

// Where a key has its cell in a row.
[[gnu::always_inline]] inline std::uint32_t cell_of(const Rules& rules, std::uint32_t key, std::uint32_t row,
                                                    std::uint32_t columns) noexcept {
  const std::uint64_t drawn = rules.hashes.at(std::uint64_t{key} * kMaxRows + row) >> 32;
  return row * columns + static_cast<std::uint32_t>(drawn * columns >> 32);
}

// The buckets of one sign, and the groups that they lie in: bucket i in group floor(i groups / buckets).
struct Grouping {
  std::uint32_t buckets = 0;
  std::uint32_t groups = 0;

  [[gnu::always_inline]] Grouping(const Rules& rules, std::uint32_t of_sign) noexcept
      : buckets(of_sign), groups(of_sign < rules.groups ? of_sign : rules.groups) {}

  // The first bucket of a group, or behind the last group.
  [[gnu::always_inline]] std::uint32_t begin(std::uint32_t group) const noexcept {
    return (group * buckets + groups - 1) / groups;
  }
};

// Bits of a number in a group of so many buckets.
[[gnu::always_inline]] inline unsigned cell_bits(std::uint32_t width) noexcept {
  return bit_width(width - 1);
}

// The bytes of so many cells.
[[gnu::always_inline]] inline std::uint64_t cell_bytes(std::uint64_t cells, unsigned bits) noexcept {
  return (cells * bits + 7) / 8;
}

// The buckets of one sign: bucket i begins with the magnitude lower[i], as bits, and stands for mean[i].
struct Buckets {
  std::uint32_t count = 0;
  std::uint32_t lower[kMaxBuckets];
  float mean[kMaxBuckets];
};

// A chunk's pairs on their way to the bytes, none of them 0; arrays of min(kChunkPairs, the part's values).
struct Staging {
  std::uint32_t* keys = nullptr;
  float* values = nullptr;
  std::uint32_t* sorted = nullptr;  // two arrays for sorting in
  std::uint32_t* spare = nullptr;
  std::uint8_t* buckets = nullptr;  // of each value, among those of its sign
  std::uint8_t* cells = nullptr;    // kMaxRows arrays, of one group's table
  std::uint32_t pairs = 0;
};

// What a decoder found wrong with a chunk.
enum class Fault : std::uint8_t {
  kNone,
  kTruncated,      // the bytes end before the chunk does
  kTrailingBytes,  // bytes follow the last group
  kPairCount,      // more than kChunkPairs, too few in a chunk that isn't the last, or an empty chunk among
                   // others
  kBuckets,        // more buckets of a sign than the spec says, or more of both than pairs, or none
  kMean,           // means that aren't finite, above 0 and in order
  kGroup,          // a group without keys, or all groups together with more or fewer than stated
  kGap,            // a gap in more bytes than it needs
  kKey,            // a key twice, out of order or outside the tensor, or not the first that the head states
  kCell,           // a number beyond the group's buckets, or one other than the largest where no key is
  kPadding,        // a set bit after the last flag or cell
  kNoRoom,         // more pairs than the receiver's slot has room for
};

// With the bytes that have been read: for those who want to know.
struct DecodeTarget : PairTarget {
  std::uint64_t mean_bytes = 0;
  std::uint64_t key_bytes = 0;
  std::uint64_t table_bytes = 0;
};

struct Kernels {
  // The bits of the largest |x|, x = in + residual; at least kInfinityBits if any x isn't finite.
  std::uint32_t (*largest)(const PairInput& input);

  // The pairs of the next chunk: from value `at` on those that aren't 0, up to kChunkPairs; moves `at` behind
  // the last value that was looked at. With a residual, x is left of them all.
  void (*collect)(const PairInput& input, std::uint64_t& at, const Staging& staging, std::uint32_t& pairs);

  // The buckets of the values above 0 and of those below, into two Buckets; and the bucket of each value.
  void (*fill_buckets)(const Rules& rules, const Staging& chunk, Buckets* of_sign);

  // Writes a chunk and returns its bytes, which sizes() has made room for. `left`: the residual of a dense
  // part, from which what was sent is taken; may be null.
  std::uint64_t (*write)(const Rules& rules, const Staging& chunk, const Buckets* of_sign, std::byte* out,
                         float* left);

  // Decodes a chunk with pairs. Reads inside the chunk alone, writes inside the target alone; on a fault what
  // the target holds is unspecified. REQUIRES: the chunk says 1 to kChunkPairs pairs.
  Fault (*decode)(const ChunkBytes& chunk, const Rules& rules, DecodeTarget& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::sketchml
