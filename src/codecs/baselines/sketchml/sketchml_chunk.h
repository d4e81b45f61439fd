// sketchml's chunks of pairs, made and read. REQUIRES of all: the calling thread in a FloatEnvironment.
// Nothing here allocates.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/random.h"
#include "codecs/kernels/chunk_bytes.h"
#include "codecs/kernels/pairs.h"

namespace deltawire::sketchml {

inline constexpr std::uint32_t kChunkPairs = 65536;
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

// Bits of a number in a group of so many buckets.
inline unsigned cell_bits(std::uint32_t width) noexcept {
  return bit_width(width - 1);
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

// What is wrong with a chunk that a decoder refuses.
namespace faults {

using deltawire::faults::kNoRoom;
using deltawire::faults::kTruncated;
inline constexpr ChunkFault kTrailingBytes = {"bytes follow its last table"};
// More than kChunkPairs, too few in a chunk that isn't the last, or an empty chunk among others.
inline constexpr ChunkFault kPairCount = {"a number of pairs that this chunk can't have"};
// More of a sign than the spec says, or more of both than pairs.
inline constexpr ChunkFault kBuckets = {"more buckets than there can be, or none"};
inline constexpr ChunkFault kMean = {"means of buckets that aren't finite, above 0 and in order"};
inline constexpr ChunkFault kGroup = {"groups with no keys, or with more or fewer than the chunk has"};
inline constexpr ChunkFault kGap = {"a gap in more bytes than it needs"};
// Or not the first that the head states.
inline constexpr ChunkFault kKey = {"a key that is out of order, there twice or outside the tensor"};
// Beyond the group's buckets, or other than the largest where no key is.
inline constexpr ChunkFault kCell = {"a cell that no key of its table can have left so"};
inline constexpr ChunkFault kPadding = {"bits follow the last flag or cell"};

}  // namespace faults

// With the bytes that have been read: for those who want to know.
struct DecodeTarget : PairTarget {
  std::uint64_t mean_bytes = 0;
  std::uint64_t key_bytes = 0;
  std::uint64_t table_bytes = 0;
};

// The pairs of the next chunk: from value `at` on those that aren't 0, up to kChunkPairs; moves `at` behind
// the last value that was looked at. With a residual, x is left of them all.
void collect(const PairInput& input, std::uint64_t& at, Staging& staging) noexcept;

// The buckets of the values above 0 and of those below, into two Buckets; and the bucket of each value.
void fill_buckets(const Rules& rules, const Staging& chunk, Buckets* of_sign) noexcept;

// Writes a chunk and returns its bytes, which sizes() has made room for. `left`: the residual of a dense
// part, from which what was sent is taken; may be null.
std::uint64_t write_chunk(const Rules& rules, const Staging& chunk, const Buckets* of_sign, std::byte* out,
                          float* left) noexcept;

// Decodes a chunk with pairs. Reads inside the chunk alone, writes inside the target alone; on a fault what
// the target holds is unspecified. REQUIRES: the chunk says 1 to kChunkPairs pairs.
Fault decode_chunk(const ChunkBytes& chunk, const Rules& rules, DecodeTarget& target) noexcept;

}  // namespace deltawire::sketchml
