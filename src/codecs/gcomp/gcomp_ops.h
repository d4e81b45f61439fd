// The kernels of gcomp: what a faster implementation replaces. Each is a pure function of its arguments, and
// every implementation must give the reference's bytes, residuals, values and faults exactly.
//
// REQUIRES of all: the calling thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float_bits.h"
#include "codecs/target_id.h"

namespace deltawire::gcomp {

inline constexpr std::uint32_t kChunkElements = 262144;
inline constexpr std::uint32_t kBlockElements = 16384;
inline constexpr std::uint32_t kMaxBlocks = kChunkElements / kBlockElements;

inline constexpr std::uint32_t kValueBytes = 4;
inline constexpr unsigned kMaxLanes = 64;
inline constexpr std::uint32_t kElementsPerLane = 256;  // a shorter block has fewer lanes
inline constexpr unsigned kWordBits = 16;               // of the words that refill a lane

inline constexpr unsigned kMaxCodeBits = 8;
inline constexpr unsigned kExponentBits = 8;  // raw, after an escape
inline constexpr std::uint32_t kLevels = 4;
inline constexpr unsigned kCutBitsPerLevel = 6;
inline constexpr unsigned kSignMantissaBits = 24;

// Symbols: 4 * exponent + level; of exponent 0 there are two; then an escape for each level.
inline constexpr std::uint32_t kZeroSymbol = 0;  // +0, without a mantissa
inline constexpr std::uint32_t kTinySymbol = 1;  // -0 and subnormals, kept whole (lossless parts)
inline constexpr std::uint32_t kPlainSymbols = 1024;
inline constexpr std::uint32_t kSymbols = kPlainSymbols + kLevels;

inline constexpr std::uint32_t kExponentMask = 0x7F800000;
inline constexpr std::uint32_t kMantissaMask = 0x007FFFFF;
inline constexpr unsigned kMantissaBits = 23;

enum class ChunkMode : std::uint8_t { kStored = 0, kZeros = 1, kUniform = 2, kMixed = 3 };
enum class BlockMode : std::uint8_t { kStored = 0, kZeros = 1, kCoded = 2 };

// How many lanes a block of `count` elements is coded in: a power of two.
[[gnu::always_inline]] constexpr unsigned lanes_for(std::uint32_t count) noexcept {
  unsigned lanes = kMaxLanes;
  while (lanes > 1 && lanes * kElementsPerLane > count) lanes /= 2;
  return lanes;
}

[[gnu::always_inline]] constexpr std::uint32_t symbol_of(std::uint32_t exponent,
                                                         std::uint32_t level) noexcept {
  return exponent * kLevels + level;
}

// Bits of sign and mantissa that follow a symbol which is no escape. In a uniform chunk, `uniform_level` is
// the level that the table's level 0 stands for; in a mixed chunk it is 0. NaN and Inf keep all bits.
[[gnu::always_inline]] constexpr unsigned mantissa_width(std::uint32_t symbol,
                                                         std::uint32_t uniform_level) noexcept {
  if (symbol == kZeroSymbol) return 0;
  if (symbol == kTinySymbol || symbol / kLevels == 255) return kSignMantissaBits;
  return kSignMantissaBits - kCutBitsPerLevel * (symbol % kLevels + uniform_level);
}

// Which values an encoder keeps of what it gets.
enum class Keep : std::uint8_t {
  kLevel,         // all cut by `level`
  kSignificance,  // cut by what the optimizer can still see
  kEverything,    // lossless
};

struct Rule {
  Keep keep = Keep::kLevel;
  std::uint32_t level = 0;  // kLevel: 0 to 3

  [[gnu::always_inline]] bool mixed() const noexcept { return keep != Keep::kLevel; }
  [[gnu::always_inline]] std::uint32_t uniform_level() const noexcept { return mixed() ? 0 : level; }
};

// A chunk or a block on its way through encode.
struct Values {
  const float* in = nullptr;
  float* residual = nullptr;            // null: no error feedback
  const float* significance = nullptr;  // REQUIRES: given where the rule is kSignificance
  std::uint32_t count = 0;
  Rule rule;
};

// Of each plain symbol: low 16 bits the code (and, after an escape, the exponent), its length, and the bits
// of sign and mantissa that follow.
struct EncodeTable {
  std::uint32_t code[kPlainSymbols];
};
inline constexpr unsigned kCodeLengthShift = 16;
inline constexpr std::uint32_t kCodeLengthMask = 0x1F;
inline constexpr unsigned kCodeMantissaShift = 24;

// Room for one word and one mantissa more than a block can have: kernels write before they know.
inline constexpr std::uint32_t kWordRoom = kBlockElements + 4;
inline constexpr std::uint32_t kMantissaRoom = kBlockElements * 3 + 8;

// Where encode_block leaves a block. The caller chooses between `values` and the rest.
struct BlockParts {
  std::uint32_t* values = nullptr;  // [kBlockElements]: bits of what a decoder will see
  std::uint32_t* codes = nullptr;   // [kBlockElements]: room for the kernel
  std::uint16_t* words = nullptr;   // [kWordRoom]: the last `word_count` of them hold the words, in order
  std::byte* mantissas = nullptr;   // [kMantissaRoom]
  std::uint32_t states[kMaxLanes] = {};
  std::uint32_t word_count = 0;
  std::uint32_t mantissa_bytes = 0;
  bool zeros = false;  // every value is +0; then nothing else is set but `values`
};

// One entry for each value of the next 8 bits: exponent in its place in a float, and below it
// length | flags | mantissa width, as the shifts say.
struct DecodeTable {
  std::uint32_t entry[1U << kMaxCodeBits];
  std::uint64_t coded[kPlainSymbols / 64];  // bit s % 64 of word s / 64: symbol s has a code
  std::uint32_t uniform_level = 0;
};
inline constexpr std::uint32_t kEntryLengthMask = 0x1F;
inline constexpr std::uint32_t kEntryEscape = 0x20;
inline constexpr std::uint32_t kEntryTiny = 0x40;
inline constexpr unsigned kEntryWidthShift = 8;   // 5 bits
inline constexpr unsigned kEntryLevelShift = 16;  // 2 bits: of an escape

// `length` counts all bits of the code, raw exponent included.
[[gnu::always_inline]] constexpr std::uint32_t make_entry(std::uint32_t symbol, std::uint32_t uniform_level,
                                                          std::uint32_t length) noexcept {
  if (symbol >= kPlainSymbols) return kEntryEscape | (symbol - kPlainSymbols) << kEntryLevelShift | length;
  return (symbol / kLevels) << kMantissaBits | mantissa_width(symbol, uniform_level) << kEntryWidthShift |
         (symbol == kTinySymbol ? kEntryTiny : 0) | length;
}

// What a decoder found wrong.
enum class Fault : std::uint8_t {
  kNone,
  kTruncated,        // the bytes end before the chunk does
  kChunkMode,        // unknown bits in the chunk's first byte
  kBlockMode,        // block mode above 2
  kBlockIndex,       // ends of blocks that don't grow, or lie outside
  kTrailingBytes,    // bytes after the last element
  kTableWindow,      // a window of exponents outside its range, or with an unused end
  kTableLength,      // a code length above 8
  kTablePadding,     // a set padding bit
  kTableKraft,       // lengths that no complete code has
  kLaneState,        // a lane that begins with fewer than 16 bits
  kLaneEnd,          // a lane that doesn't end as encoders begin
  kWordsLeft,        // words that no lane asked for
  kEscape,           // an escape for what has a code or doesn't exist
  kTinyZero,         // +0 as a kept tiny value
  kMantissaPadding,  // set bits or whole bytes after the last mantissa
};

// Body of a coded block behind its mode byte; may be any bytes.
struct BlockBytes {
  const std::byte* at = nullptr;
  std::uint32_t bytes = 0;
};

struct Target {
  float* slot = nullptr;
  std::uint32_t count = 0;
  float scale = 1;
  bool accumulate = false;
};

struct Kernels {
  // Adds up how often each plain symbol occurs among the sampled elements of a chunk (spec.md, 6.3);
  // `counts` has kPlainSymbols entries, which are set.
  void (*histogram)(const Values& chunk, std::uint32_t* counts);

  // Codes one block of 1 to kBlockElements values into `parts`, and leaves in the residual what was cut.
  void (*encode_block)(const Values& block, const EncodeTable& table, BlockParts& parts);

  // Decodes the body of a coded block. On a fault the slot's content is unspecified.
  Fault (*decode_block)(const BlockBytes& body, const DecodeTable& table, const Target& target);

  // Hands over `count` stored values, 4 bytes each, or (payload null) as many zeros.
  void (*decode_stored)(const std::byte* payload, const Target& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

// The reference decoder, in a file of its own.
namespace DELTAWIRE_TARGET {
Fault decode_block(const BlockBytes& body, const DecodeTable& table, const Target& target);
void decode_stored(const std::byte* payload, const Target& target);
}  // namespace DELTAWIRE_TARGET

}  // namespace deltawire::gcomp
