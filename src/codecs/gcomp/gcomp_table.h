// The code tables of gcomp: choosing lengths for a histogram, writing and reading them, and the lookup tables
// of encoder and decoder. Nothing here allocates, and every choice is made in integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp {

// Bits of each slot's code; 0: it has none. Row 0 is the exponent `base`.
struct CodeLengths {
  std::uint8_t bits[kSlots] = {};
  std::uint32_t base = 0;
  Precision precision = {};
};

// A slot and how often it is expected.
struct SlotWeight {
  std::uint32_t weight = 0;
  std::uint32_t slot = 0;
};

// Lengths of zero, escape, tiny; then which levels there are, and a window for each.
inline constexpr std::uint32_t kMaxTableBytes = 3 + kLevels * (2 + kWindow / 2);
inline constexpr std::uint32_t kStaticTables = 3;  // ids 1 to kStaticTables; 0 is a table of the chunk's own
inline constexpr std::uint32_t kStaticExponents = 12;

// Optimal lengths of at most kMaxCodeBits bits for 2 to 2^kMaxCodeBits slots: package-merge, after L. L.
// Larmore, D. S. Hirschberg, "A Fast Algorithm for Optimal Length-Limited Huffman Codes" (JACM 37(3), 1990).
// Of equally frequent slots the lower one gets no longer code. Sorts `slots`. REQUIRES: the sum of all
// weights is below 2^28.
void limit_lengths(std::span<SlotWeight> slots, CodeLengths& lengths);

// A histogram, and whether it counts every element of the chunk.
struct Histogram {
  std::uint32_t counts[kCounts];
  bool complete = false;
};

// A table as it stands in a chunk.
struct TableChoice {
  CodeLengths lengths;
  std::uint32_t id = 0;      // 0: own, 1 to kStaticTables
  std::uint32_t top = 0;     // of a static table: the exponent that its first length belongs to
  std::uint64_t bits = 0;    // of what was counted, with a table of its own and without it
  bool worth_coding = true;  // that is fewer than 32 bits a value
};

// The table for a chunk (spec.md, 6.4): its own, in which frequent symbols get codes and the others join a
// lower level or are escaped; or, for a complete histogram of a float32 chunk with one level, a static one if
// that makes all smaller. REQUIRES: the histogram isn't empty.
void choose_table(const Histogram& histogram, const Rule& rule, TableChoice& choice);

// The same for what these kernels count of a chunk. REQUIRES: the chunk isn't empty.
void choose_table(const Kernels& kernels, const Values& chunk, TableChoice& choice);

// Static tables for short chunks: shapes of histograms that gradients often have, laid at any exponent.

inline constexpr std::uint32_t kStaticTops = 5;  // an encoder tries this many places for each shape

struct StaticShape {
  std::uint8_t exponents[kStaticExponents];  // of the top exponent, and of each one below it in turn
  std::uint8_t escape;
  std::uint8_t zero;
};

// Optimal within 8 bits for normally distributed values, for Laplace-distributed ones, and for these among as
// many zeros.
inline constexpr StaticShape kStaticShapes[kStaticTables] = {
    {{5, 2, 2, 2, 3, 5, 5, 7, 8, 8, 8, 8}, 8, 8},
    {{6, 3, 2, 2, 3, 3, 4, 6, 7, 7, 8, 8}, 8, 8},
    {{7, 4, 3, 3, 4, 4, 6, 6, 7, 8, 8, 8}, 8, 1},
};

// Whether a shape whose first exponent is `top` lies within exponents 1 to 254.
inline constexpr bool static_fits(std::uint32_t top) noexcept {
  return top >= kStaticExponents && top <= 254;
}

// Lengths of the static table `id` (1 to kStaticTables) at exponent `top`, all at one level. REQUIRES:
// static_fits(top).
inline void static_lengths(std::uint32_t id, std::uint32_t top, std::uint32_t level,
                           CodeLengths& lengths) noexcept {
  const StaticShape& shape = kStaticShapes[id - 1];
  lengths = {};
  lengths.base = top - kStaticExponents;
  for (std::uint32_t i = 0; i < kStaticExponents; ++i) {
    lengths.bits[level * kRows + kStaticExponents - i] = shape.exponents[i];
  }
  lengths.bits[kEscapeSlot] = shape.escape;
  lengths.bits[kZeroSlot] = shape.zero;
}

// Two lengths in a byte of a table.
inline constexpr unsigned kNibbleBits = 4;
inline constexpr std::byte two_lengths(unsigned low, unsigned high) noexcept {
  return static_cast<std::byte>(low | high << kNibbleBits);
}

// Writes `choice` to `out`, which has kMaxTableBytes; returns the bytes.
std::uint32_t write_table(const TableChoice& choice, bool whole, std::byte* out);

void make_encode_table(const CodeLengths& lengths, EncodeTable& table);

// Reads the table of a chunk from hostile bytes.
struct TableBytes {
  const std::byte* at = nullptr;
  std::uint32_t bytes = 0;  // up to the end of the chunk
  bool whole = false;
  std::uint32_t level = 0;  // of all exponents of a static table
  std::uint32_t id = 0;
  Precision precision = {};
};
Fault read_table(const TableBytes& in, DecodeTable& table, std::uint32_t& used);

}  // namespace deltawire::gcomp
