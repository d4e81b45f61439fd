// The kernels of gcomp: what a faster implementation replaces. Each is a pure function of its arguments, and
// every implementation must give the reference's bytes, residuals, values and faults exactly.
//
// REQUIRES of all: the calling thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/kernels/chunk_bytes.h"
#include "codecs/target_id.h"

namespace deltawire::gcomp {

inline constexpr std::uint32_t kChunkElements = 262144;
inline constexpr std::uint32_t kBlockElements = 32768;
inline constexpr std::uint32_t kMaxBlocks = kChunkElements / kBlockElements;

inline constexpr std::uint32_t kValueBytes = 4;
inline constexpr unsigned kMaxLanes = 64;              // of codes
inline constexpr std::uint32_t kElementsPerLane = 64;  // a shorter block has fewer lanes
inline constexpr unsigned kMaxMantissaLanes = kMaxLanes / 4;
inline constexpr std::uint32_t kMaxStretch = 2 * kMaxLanes;  // elements between two refills

inline constexpr unsigned kMaxCodeBits = 8;
inline constexpr unsigned kWordBits = 16;  // of the words that refill a lane of codes
inline constexpr std::uint32_t kWordBytes = kWordBits / 8;
inline constexpr unsigned kMantissaWordBits = 32;
inline constexpr std::uint32_t kMantissaWordBytes = kMantissaWordBits / 8;
inline constexpr std::uint32_t kStateBytes = 4;

inline constexpr std::uint32_t kLevels = 8;
inline constexpr unsigned kSignMantissaBits = 24;
inline constexpr std::uint32_t kSignMantissaBytes = kSignMantissaBits / 8;

inline constexpr std::uint32_t kExponentMask = 0x7F800000;
inline constexpr std::uint32_t kMantissaMask = 0x007FFFFF;
inline constexpr unsigned kMantissaBits = 23;

// Exponents above are kept whole: a carry would make an Inf; or 65,536, which no float16 is.
inline constexpr std::uint32_t kHighestCut = 253;
inline constexpr std::uint32_t kHighestCutOfFloat16 = 141;

// The symbols that are counted: 256 * level + exponent. Exponent 0 has two: +0, and the other values, which
// are kept whole or not at all.
inline constexpr std::uint32_t kCounts = kLevels * 256;
inline constexpr std::uint32_t kZeroCount = 0;
inline constexpr std::uint32_t kTinyCount = 256;

// What is coded: 32 * level + row, where rows 1 to 30 are the exponents of a table's window.
inline constexpr std::uint32_t kRows = 32;
inline constexpr std::uint32_t kWindow = 30;  // exponents that a table may have codes for
inline constexpr std::uint32_t kSlots = kLevels * kRows;
inline constexpr std::uint32_t kZeroSlot = 0;
inline constexpr std::uint32_t kEscapeSlot = 31;  // the exponent follows, then 24 bits
inline constexpr std::uint32_t kTinySlot = 32;

enum class ChunkMode : std::uint8_t { kStored = 0, kZeros = 1, kWhole = 2, kCut = 3 };
enum class BlockMode : std::uint8_t { kStored = 0, kZeros = 1, kCoded = 2 };

// How many lanes the codes of a block of `count` elements are in: a power of two.
[[gnu::always_inline]] constexpr unsigned lanes_for(std::uint32_t count) noexcept {
  unsigned lanes = kMaxLanes;
  while (lanes > 1 && lanes * kElementsPerLane > count) lanes /= 2;
  return lanes;
}

[[gnu::always_inline]] constexpr unsigned mantissa_lanes_for(unsigned lanes) noexcept {
  return lanes < 4 ? 1 : lanes / 4;
}

// Bytes of the lanes of a coded block, behind its stream.
[[gnu::always_inline]] constexpr std::uint32_t states_bytes(std::uint32_t count, bool in_bytes) noexcept {
  const unsigned lanes = lanes_for(count);
  return (lanes + (in_bytes ? 0 : mantissa_lanes_for(lanes))) * kStateBytes;
}

// How fine the values of a chunk are: float32, or those of a 16-bit type.
struct Precision {
  std::uint32_t unused = 0;    // low bits of the mantissa that are 0 in every value
  std::uint32_t step = 3;      // bits from one level to the next
  std::uint32_t in_chunk = 0;  // its number in a chunk's first byte
  std::uint32_t highest_cut = kHighestCut;

  // Low bits of the mantissa that are 0 at a level.
  [[gnu::always_inline]] constexpr std::uint32_t cut_at(std::uint32_t level) const noexcept {
    return unused + step * level;
  }
  // Bits of sign and mantissa, in steps, behind the code of a slot.
  [[gnu::always_inline]] constexpr std::uint32_t steps_behind(std::uint32_t slot) const noexcept {
    const std::uint32_t most = (kSignMantissaBits - unused) / step;
    if (slot == kZeroSlot) return 0;
    return slot == kTinySlot ? most : most - slot / kRows;
  }
  [[gnu::always_inline]] constexpr bool is_half() const noexcept { return unused != 0; }
};
inline constexpr Precision kFloat32 = {};
inline constexpr Precision kBFloat16 = {16, 1, 1};
inline constexpr Precision kFloat16 = {13, 1, 2};

// log2 of the share of a chunk that is counted: all of a short one, one element in 16 of a long one, and at
// least kLeastSample.
inline constexpr std::uint32_t kLeastSample = 1024;
inline constexpr unsigned kMaxSampleShare = 4;
inline constexpr std::uint32_t kMostSample = kChunkElements >> kMaxSampleShare;
[[gnu::always_inline]] constexpr unsigned sample_share(std::uint32_t count) noexcept {
  unsigned share = 0;
  while (share < kMaxSampleShare && count >= kLeastSample << (share + 1)) ++share;
  return share;
}

// Which values an encoder keeps of what it gets.
enum class Keep : std::uint8_t {
  kLevel,         // all cut by `level`
  kSignificance,  // cut by what the optimizer can still see
  kEverything,    // lossless
};

// Whether all values are coded at one level, but for tiny ones. kInBytes: as for_values() has it.
template <Keep kKeep, bool kInBytes>
inline constexpr bool kOneLevel = kInBytes || kKeep == Keep::kEverything;

struct Rule {
  Keep keep = Keep::kLevel;
  std::uint32_t level = 0;   // kLevel: 0 to 7
  std::uint32_t step = 1;    // kSignificance: levels are multiples of 1 or 2
  Precision precision = {};  // REQUIRES: if it is_half(), all values have it

  // Nothing is cut.
  [[gnu::always_inline]] bool whole() const noexcept {
    return keep == Keep::kEverything || (keep == Keep::kLevel && level == 0 && !precision.is_half());
  }
  // Nor are signs and mantissas in lanes: each is three whole bytes.
  [[gnu::always_inline]] bool in_bytes() const noexcept { return whole() && !precision.is_half(); }
};

// `distance`: the exponent of a significance above that of the value, plus 1. The largest level l that is a
// multiple of the rule's step and cuts no more than `distance` bits, or 0: then half a step of the last bit
// kept is no more than one unit in the last place of the significance.
[[gnu::always_inline]] constexpr std::uint32_t significance_level(std::int32_t distance,
                                                                  const Rule& rule) noexcept {
  const std::int32_t beyond = distance - static_cast<std::int32_t>(rule.precision.unused);
  if (beyond <= 0) return 0;
  const std::uint32_t cuts = static_cast<std::uint32_t>(beyond) / (rule.precision.step * rule.step);
  const std::uint32_t most = (kLevels - 1) / rule.step;
  return (cuts < most ? cuts : most) * rule.step;
}
inline constexpr std::int32_t kFarDistance = 31;  // all distances from here on have the highest level

// A chunk or a block on its way through encode.
struct Values {
  const float* in = nullptr;
  float* residual = nullptr;            // null: no error feedback
  const float* significance = nullptr;  // REQUIRES: given where the rule is kSignificance
  std::uint32_t count = 0;
  Rule rule;
  bool streamed = false;  // the part is so large that its bytes go past the caches
};

// From value `begin` on.
[[gnu::always_inline]] inline Values rest_of(const Values& values, std::uint32_t begin) noexcept {
  return {values.in + begin,
          values.residual != nullptr ? values.residual + begin : nullptr,
          values.significance != nullptr ? values.significance + begin : nullptr,
          values.count - begin,
          values.rule,
          values.streamed};
}

// For each slot: bits 0-3 the length of the code that an encoder uses for it, 4-11 the code, 12-15 the bits
// of sign and mantissa behind it, in steps of its Precision. A slot without a code uses the code of a lower
// level of its exponent, which cuts less, or else the escape's.
struct EncodeTable {
  alignas(64) std::uint16_t entry[kSlots];
  std::uint32_t base = 0;    // exponent of row 0
  std::uint16_t escape = 0;  // the escape's entry: no other slot's own
  std::uint8_t row[256];     // of each exponent; kEscapeSlot outside the window
  std::uint8_t levels[256];  // of each exponent: the bits of 32 * level that its slots have
};
inline constexpr unsigned kEntryLengthMask = 0xF;
inline constexpr unsigned kEntryCodeShift = 4;
inline constexpr unsigned kEntryCodeMask = 0xFF;
inline constexpr unsigned kEntryStepsShift = 12;

// One entry for each value of the next 8 bits: bits 0-3 the code's length, 4-8 the bits of sign and mantissa,
// 9-13 the row.
struct DecodeTable {
  alignas(64) std::uint16_t entry[1U << kMaxCodeBits];
  std::uint32_t base = 0;       // exponent of row 0
  std::uint32_t step = 3;       // of its Precision: widths are multiples of it
  bool whole = false;           // tiny values are kept
  bool in_bytes = false;        // signs and mantissas are in bytes, not in lanes
  std::uint64_t coded[4] = {};  // bit e % 64 of word e / 64: exponent e has a code at level 0; 0: tiny has
};
inline constexpr unsigned kEntryWidthShift = 4;
inline constexpr unsigned kEntryWidthMask = 0x1F;
inline constexpr unsigned kEntryRowShift = 9;

// The most that stream and lanes take, and what kernels may write behind them before they know.
inline constexpr std::uint32_t kStretchBytes =
    kMaxStretch * (1 + kMantissaWordBytes) + kMaxLanes * kWordBytes;  // the most that a stretch can read
inline constexpr std::uint32_t kStatesBytes = (kMaxLanes + kMaxMantissaLanes) * kStateBytes;
inline constexpr std::uint32_t kBlockRoom =
    kBlockElements * (kSignMantissaBytes + 2) + kStatesBytes + kStretchBytes;

struct EncodedBlock {
  std::uint32_t stream_bytes = 0;
  bool zeros = false;  // every value that a decoder will see is +0
};

// What is wrong with a chunk that a decoder refuses.
namespace faults {

using deltawire::faults::kTruncated;
inline constexpr ChunkFault kChunkMode = {"the first byte is of no known mode"};
inline constexpr ChunkFault kBlockMode = {"unknown block mode"};
inline constexpr ChunkFault kBlockIndex = {"the ends of blocks don't grow"};
inline constexpr ChunkFault kTrailingBytes = {"bytes follow the last element"};
inline constexpr ChunkFault kTableWindow = {
    "the table's exponents are out of range or too far apart, or a window has an unused end"};
inline constexpr ChunkFault kTableLength = {"a code longer than 8 bits"};
inline constexpr ChunkFault kTablePadding = {"the table's padding isn't 0"};
inline constexpr ChunkFault kTableKraft = {"the table's lengths make no complete code"};
inline constexpr ChunkFault kLaneState = {"a lane begins with too few bits, or has no end bit"};
inline constexpr ChunkFault kLaneEnd = {"a lane doesn't end empty"};
inline constexpr ChunkFault kBytesLeft = {"bytes of a block's stream are left over"};
inline constexpr ChunkFault kEscape = {"an escape for a symbol that has a code or doesn't exist"};
inline constexpr ChunkFault kTinyZero = {"a zero among the subnormals"};

}  // namespace faults

// The stream of a coded block; its lanes, states_bytes() of them, stand behind it. They may be any bytes.
struct BlockBytes {
  const std::byte* at = nullptr;
  std::uint32_t stream_bytes = 0;
};

struct Target {
  float* slot = nullptr;
  std::uint32_t count = 0;
  float scale = 1;
  bool accumulate = false;
  bool streamed = false;  // the part is so large that its values go past the caches
};

// From value `begin` on.
[[gnu::always_inline]] inline Target rest_of(const Target& target, std::uint32_t begin) noexcept {
  return {target.slot + begin, target.count - begin, target.scale, target.accumulate, target.streamed};
}

struct Kernels {
  // How often each of kCounts occurs among the sampled elements of a chunk (spec.md, 6.3). Sets all `counts`.
  void (*histogram)(const Values& chunk, std::uint32_t* counts);

  // Codes one block of 1 to kBlockElements values: writes stream and lanes to `out`, which has kBlockRoom,
  // and leaves in the residual what was cut.
  EncodedBlock (*encode_block)(const Values& block, const EncodeTable& table, std::byte* out);

  // Writes what is kept of the values to `out`, 4 bytes each, and leaves in the residual what was cut.
  void (*store_values)(const Values& values, std::byte* out);

  // Decodes stream and lanes of a coded block. On a fault the slot's content is unspecified.
  Fault (*decode_block)(const BlockBytes& body, const DecodeTable& table, const Target& target);

  // Decodes two coded blocks of kBlockElements by turns, as the codes of either wait for those before them.
  // False: a block has a fault, which decode_block() finds, or nothing would be gained. Null: never gained.
  bool (*decode_two)(const BlockBytes (&bodies)[2], const DecodeTable& table, const Target (&targets)[2]);

  // Hands over `count` stored values, 4 bytes each, or (payload null) as many zeros.
  void (*decode_stored)(const std::byte* payload, const Target& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

// Decoding, in separate files.
namespace DELTAWIRE_TARGET {
Fault decode_block(const BlockBytes& body, const DecodeTable& table, const Target& target);
bool decode_two(const BlockBytes (&bodies)[2], const DecodeTable& table, const Target (&targets)[2]);
void decode_stored(const std::byte* payload, const Target& target);
}  // namespace DELTAWIRE_TARGET

}  // namespace deltawire::gcomp
