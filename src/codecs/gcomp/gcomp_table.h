// The code tables of gcomp: choosing lengths for a histogram, writing and reading them, and the lookup tables
// of encoder and decoder. Nothing here allocates, and every choice is made in integers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp {

// Bits of each symbol's code; 0: it has none.
struct CodeLengths {
  std::uint8_t bits[kSymbols] = {};
};

// A symbol and how often it is expected.
struct SymbolWeight {
  std::uint32_t weight = 0;
  std::uint32_t symbol = 0;
};

inline constexpr std::uint32_t kMaxCodedSymbols = 192;  // without escapes
inline constexpr std::uint32_t kMaxTableBytes = 3 + kLevels * (2 + 128);
inline constexpr std::uint32_t kStaticTables =
    3;  // ids 1 to kStaticTables; id 0 is a table of the chunk's own
inline constexpr std::uint32_t kStaticExponents = 12;

// Optimal lengths of at most kMaxCodeBits bits for 2 to 2^kMaxCodeBits symbols: package-merge, after L. L.
// Larmore, D. S. Hirschberg, "A Fast Algorithm for Optimal Length-Limited Huffman Codes" (JACM 37(3), 1990).
// Of equally frequent symbols the lower one gets no longer code. Sorts `symbols`.
void limit_lengths(std::span<SymbolWeight> symbols, CodeLengths& lengths);

// A histogram of kPlainSymbols entries, and whether it counts every element of the chunk.
struct Histogram {
  std::uint32_t counts[kPlainSymbols];
  bool complete = false;
};

// A table as it stands in a chunk.
struct TableChoice {
  CodeLengths lengths;
  std::uint32_t id = 0;    // 0: own, 1 to kStaticTables
  std::uint32_t base = 0;  // of a static table: the exponent that its first length belongs to
};

// The table for a chunk (spec.md, 6.4): its own, in which frequent symbols get codes and the others are
// escaped; or, for a complete histogram of a uniform chunk, a static one if that makes table and codes
// together smaller. REQUIRES: the histogram isn't empty.
void choose_table(const Histogram& histogram, const Rule& rule, TableChoice& choice);

// Two lengths in a byte of a table.
inline constexpr unsigned kNibbleBits = 4;
inline constexpr std::byte two_lengths(unsigned low, unsigned high) noexcept {
  return static_cast<std::byte>(low | high << kNibbleBits);
}

// Writes `choice` to `out`, which has kMaxTableBytes; returns the bytes.
std::uint32_t write_table(const TableChoice& choice, bool mixed, std::byte* out);

// `uniform_level`: what level 0 stands for, as in mantissa_width().
void make_encode_table(const CodeLengths& lengths, std::uint32_t uniform_level, EncodeTable& table);

// Reads the table of a chunk from hostile bytes.
struct TableBytes {
  const std::byte* at = nullptr;
  std::uint32_t bytes = 0;  // up to the end of the chunk
  bool mixed = false;
  std::uint32_t uniform_level = 0;
  std::uint32_t id = 0;
};
Fault read_table(const TableBytes& in, DecodeTable& table, std::uint32_t& used);

}  // namespace deltawire::gcomp
