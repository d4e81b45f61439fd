// Kernels that the sparse codecs share: which elements are the largest, where they stand, their values. Each
// is a pure function of its arguments, and every implementation must give the reference's bytes, residuals
// and faults exactly. The layouts: src/codecs/sbc/spec.md, section 2, and src/codecs/topk/spec.md.
//
// REQUIRES of all: the calling thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/float16.h"
#include "base/little_endian.h"
#include "codecs/kernels/addends.h"
#include "codecs/kernels/chunk_bytes.h"
#include "codecs/kernels/rice.h"
#include "codecs/kernels/steps.h"
#include "codecs/target_id.h"

namespace deltawire {

// How values are coded: as they are, rounded to bfloat16, as multiples of a step, or by their bins
// (sparse_part.h). What is below is for codes of whole bytes, all but the last.

enum class ValueFormat : std::uint8_t { kFp32, kBf16, kInt8, kBins };

struct ValueCode {
  ValueFormat format = ValueFormat::kFp32;
  float step = 0;  // of int8; 0 for the other formats
};

[[gnu::always_inline]] constexpr std::uint32_t value_bytes(ValueFormat format) noexcept {
  return format == ValueFormat::kFp32 ? 4 : format == ValueFormat::kBf16 ? 2 : 1;
}

inline constexpr std::uint16_t kBf16Magnitude = 0x7FFF;
inline constexpr std::uint16_t kLargestBf16 = 0x7F7F;

// The nearest bfloat16, ties to even, but never Inf. REQUIRES: a finite value.
[[gnu::always_inline]] inline std::uint16_t finite_bf16_of(float value) noexcept {
  const std::uint16_t rounded = bf16_of(bit_cast<std::uint32_t>(value));
  if ((rounded & kBf16Magnitude) <= kLargestBf16) return rounded;
  return static_cast<std::uint16_t>((rounded & ~kBf16Magnitude) | kLargestBf16);
}

// The value behind a code.
[[gnu::always_inline]] inline float value_of(const std::byte* code, const ValueCode& rules) noexcept {
  switch (rules.format) {
    case ValueFormat::kFp32: return bit_cast<float>(load_le<std::uint32_t>(code));
    case ValueFormat::kBf16: return bit_cast<float>(bits_of_bf16(load_le<std::uint16_t>(code)));
    default: return int8::code_value(*code) * rules.step;
  }
}

// Whether an encoder may have written this code: finite; of int8 no -128, and where the step is 0 none but 0.
[[gnu::always_inline]] inline bool is_value_code(const std::byte* code, const ValueCode& rules) noexcept {
  if (rules.format == ValueFormat::kInt8) {
    return *code != int8::kUnusedCode && (rules.step > 0 || *code == std::byte{0});
  }
  return (bit_cast<std::uint32_t>(value_of(code, rules)) & kMagnitudeMask) < kInfinityBits;
}

// REQUIRES: a finite value; of int8 none that the step takes beyond 127.
[[gnu::always_inline]] inline void put_value(float value, const ValueCode& rules, std::byte* code) noexcept {
  switch (rules.format) {
    case ValueFormat::kFp32: store_le(code, bit_cast<std::uint32_t>(value)); return;
    case ValueFormat::kBf16: store_le(code, finite_bf16_of(value)); return;
    default: *code = int8::code_of(value, rules.step > 0 ? rules.step : 1.0F);
  }
}

}  // namespace deltawire

namespace deltawire::sparse {

inline constexpr std::uint32_t kChunkPositions = 16384;  // in every chunk of a part but the last
inline constexpr std::uint64_t kMaxElements = 0xFFFFFFFF;

inline constexpr std::uint32_t kEmptyHeadBytes = 3;  // u8 code, u16 positions
inline constexpr std::uint32_t kHeadBytes = 7;       // and u32 first position
inline constexpr std::uint32_t kLaneLengthBytes = 2;
inline constexpr unsigned kMaxLanes = 8;
inline constexpr unsigned kMaxParameter = 24;  // low bits of a gap that are written as they are
inline constexpr unsigned kEscapeBits = 32;    // of a raw gap

// How the positions of a chunk are coded.
enum class PositionCode : std::uint8_t {
  kGolomb,   // gaps, as the paper of sbc has them
  kShorter,  // that, or the middle one between its neighbours, then the middle of each half, and so on
};
inline constexpr unsigned kInterpolativeCode = 31;       // a chunk's first byte then: no Rice parameter
inline constexpr std::uint32_t kInterpolativeHead = 11;  // bytes: u8 code, u16 positions, u32 first, u32 last

// Candidates of one sign, in the order of their positions. A magnitude is the bits of |x|: as unsigned
// integers these order as the values do.
struct Candidates {
  std::uint32_t* positions = nullptr;
  std::uint32_t* magnitudes = nullptr;
  std::uint64_t count = 0;
};

struct SelectInput {
  const float* in = nullptr;
  const float* residual = nullptr;  // null: no error feedback
  float* left = nullptr;            // where select() leaves x, apart from `residual`; null: nowhere
  std::uint64_t count = 0;          // at most kMaxElements
  std::uint64_t keep = 0;           // 1 to count
};

// Elements that are looked at together at most.
inline constexpr std::uint32_t kSelectBlock = 1024;

// What kernels may write behind the last of some numbers, so that a vector is stored whole.
inline constexpr std::uint32_t kVectorSlack = 16;

// Candidates of a sign are cut down to the largest when they are more than this: twice what is kept, so that
// it pays for itself.
[[gnu::always_inline]] constexpr std::uint64_t most_candidates(std::uint64_t keep) noexcept {
  return 2 * keep + 256;
}

// Room that select() needs in each array of Candidates.
[[gnu::always_inline]] constexpr std::uint64_t candidate_room(std::uint64_t count,
                                                              std::uint64_t keep) noexcept {
  const std::uint64_t usual = most_candidates(keep) + kSelectBlock;
  return (usual < count ? usual : count) + kVectorSlack;
}

// Where select() looks for a first guess at the thresholds, in parts that are large enough for it: somewhere
// in each of kSamples stretches of `stride` groups, so that no rhythm of the data can hide from it.
inline constexpr std::uint64_t kSamples = 2048;
inline constexpr std::uint32_t kSampleGroup = 16;  // elements: one line of a cache
inline constexpr std::uint64_t kLeastStride = 4;
[[gnu::always_inline]] constexpr std::uint64_t sample_stride(std::uint64_t count) noexcept {
  return count / (kSamples * kSampleGroup);
}
[[gnu::always_inline]] constexpr std::uint64_t sampled_element(std::uint64_t sample,
                                                               std::uint64_t stride) noexcept {
  const std::uint64_t draw = (sample * 0x9E3779B97F4A7C15) >> 32;  // Weyl's sequence by the golden ratio
  return (sample * stride + (draw * stride >> 32)) * kSampleGroup;
}

inline constexpr unsigned kLaneShift = 5;  // of log2(lanes) in the first byte of a chunk

// Streams over which an encoder spreads the gaps of a chunk.
[[gnu::always_inline]] constexpr unsigned lanes_for(std::uint32_t positions) noexcept {
  return positions < 512 ? 1 : positions < 4096 ? 4 : 8;
}

// More than any chunk's head and the padding of its lanes take.
inline constexpr std::uint32_t kMaxChunkOverhead =
    kHeadBytes + kLaneLengthBytes * (kMaxLanes - 1) + kMaxLanes;

// What is wrong with a chunk that a decoder refuses.
namespace faults {

using deltawire::faults::kTruncated;
inline constexpr ChunkFault kParameter = {"Rice parameter above 24"};
inline constexpr ChunkFault kLanes = {"lanes other than 1, 4 or 8"};  // or the unused bit of the first byte
inline constexpr ChunkFault kUnusedCode = {"a code for gaps where there are none"};
inline constexpr ChunkFault kCount = {"more than 16384 positions"};
inline constexpr ChunkFault kOrder = {"its first position isn't behind the chunk before"};
inline constexpr ChunkFault kPosition = {"a position outside the part"};
inline constexpr ChunkFault kEscape = {"a raw gap that has a shorter code"};
inline constexpr ChunkFault kPadding = {"bits follow the last code of a lane"};
inline constexpr ChunkFault kTrailingBytes = {"bytes follow an empty chunk"};
inline constexpr ChunkFault kLast = {"no room for its positions before the last one"};  // interpolative

}  // namespace faults

struct DecodeTarget {
  float* slot = nullptr;               // null: check alone
  std::uint64_t count = 0;             // of the part; at most kMaxElements
  float value = 0;                     // the scaled mean
  bool accumulate = false;             // slot += instead of slot =
  std::uint32_t* positions = nullptr;  // where the chunk's positions go, in order, and no slot is written.
                                       // May be null; has room for kChunkPositions
};

// Some elements, in the order of their positions.
struct Elements {
  const std::uint32_t* positions = nullptr;
  const float* values = nullptr;
  std::uint64_t count = 0;
};

// Where scatter() puts elements.
struct ScatterTarget {
  float* slot = nullptr;
  float scale = 1;
  bool accumulate = false;
};

// What collect() found.
struct Collected {
  std::uint32_t count = 0;
  std::uint64_t next = 0;  // the first element that it hasn't looked at
};

// What a chunk that decoded without a fault has.
struct ChunkContent {
  Fault fault = nullptr;
  std::uint32_t positions = 0;
  std::uint32_t head_bytes = 0;
  std::uint64_t code_bits = 0;  // of all gaps, without padding
  std::uint64_t next = 0;       // the position after the last one
};

// What is among the largest: more than `magnitude`, or equal to it and one of the first `ties`.
// Targets may name another magnitude where it parts the same.
struct Threshold {
  std::uint32_t magnitude = 0;
  std::uint64_t ties = 0;
};

struct Kernels {
  // Leaves in `positive` and `negative` (candidate_room() each; zeros are neither) the `keep` largest of each
  // sign of x = in + residual by (|x| descending, position ascending), in the order of positions, or all
  // where there are fewer. An infinite or NaN x counts as larger than every finite one of the sign that it
  // bears. `spare` has candidate_room() numbers too, overwritten.
  void (*select)(const SelectInput& input, Candidates& positive, Candidates& negative, std::uint32_t* spare);

  // Sum of magnitudes as doubles, in the order that spec.md fixes. Not finite exactly if one isn't.
  double (*sum)(const std::uint32_t* magnitudes, std::uint64_t count);

  // residual += in.
  void (*add)(const float* in, float* residual, std::uint64_t count);

  // left -= mean at the positions.
  void (*subtract)(float* left, const std::uint32_t* positions, std::uint64_t count, float mean);

  // Writes a chunk of 0 to kChunkPositions positions to `out`, which has at least
  // kMaxChunkOverhead + 7 * count bytes or what all chunks of the part can take. Returns the bytes written.
  std::uint32_t (*encode_chunk)(const std::uint32_t* positions, std::uint32_t count, std::byte* out,
                                std::uint64_t out_bytes);

  // The bytes that encode_chunk() would write.
  std::uint32_t (*golomb_bytes)(const std::uint32_t* positions, std::uint32_t count);

  // The same as encode_chunk() in the interpolative code.
  std::uint32_t (*interpolate_chunk)(const std::uint32_t* positions, std::uint32_t count, std::byte* out,
                                     std::uint64_t out_bytes);

  // Decodes one chunk, whose positions must be >= begin. Reads inside `chunk` alone, writes at positions
  // inside the slot alone; on a fault the slot's content is unspecified.
  ChunkContent (*decode_chunk)(const ChunkBytes& chunk, std::uint64_t begin, const DecodeTarget& target);

  // What is among the `keep` largest. `spare` has room for `count` and kVectorSlack, overwritten. REQUIRES: 1
  // <= keep <= count.
  Threshold (*find_threshold)(const std::uint32_t* magnitudes, std::uint64_t count, std::uint64_t keep,
                              std::uint32_t* spare);

  // Lists the elements of x from element `from` on whose |x| has at least these bits, until kChunkPositions
  // are found or x ends. REQUIRES: least > 0.
  Collected (*collect)(const Addends& x, std::uint64_t from, std::uint32_t least, std::uint32_t* positions,
                       float* values);

  // Writes the codes of the values, value_bytes() each, and puts in the values' place what decoders get.
  // REQUIRES: finite values, none larger than the one that code.step was made for.
  void (*encode_values)(float* values, std::uint64_t count, const ValueCode& code, std::byte* out);

  // The index of the first code that no encoder writes, or `count`.
  std::uint64_t (*find_bad_value)(const std::byte* codes, std::uint64_t count, const ValueCode& code);

  // REQUIRES: find_bad_value() found none.
  void (*decode_values)(const std::byte* codes, std::uint64_t count, const ValueCode& code, float* values);

  // left -= the elements.
  void (*subtract_elements)(float* left, const Elements& sent);

  // Writes the elements, times the scale, or adds them. One of 0 is left out.
  void (*scatter)(const Elements& elements, const ScatterTarget& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

// What kernels are made of, in files of their own.
namespace DELTAWIRE_TARGET {

// Elements that are looked at together.
struct Block {
  std::uint64_t at = 0;
  std::uint32_t count = 0;      // at most kSelectBlock
  std::uint32_t below[2] = {};  // positive and negative x of larger magnitudes are candidates
  bool streamed = false;        // x is stored past the caches
};

// Appends a block's candidates to the lists of positive and of negative ones. REQUIRES: room for all of the
// block in both, and for kVectorSlack more.
void find_candidates(const SelectInput& input, const Block& block, Candidates* lists);

// Appends those of `count` elements that are above; each is written whether it is one or not, as no branch
// can foretell it.
[[gnu::always_inline]] inline void append_above(const std::uint32_t* bits, std::uint32_t count,
                                                std::uint64_t at, const Block& block,
                                                Candidates* lists) noexcept {
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t sign = bits[i] >> 31;
    const std::uint32_t magnitude = bits[i] & kMagnitudeMask;
    Candidates& list = lists[sign];
    list.positions[list.count] = static_cast<std::uint32_t>(at + i);
    list.magnitudes[list.count] = magnitude;
    list.count += magnitude > block.below[sign] ? 1 : 0;
  }
}

// After the last streamed block, so that other threads see what was stored past the caches.
void end_stream();

// The threshold of the `keep` largest. `spare` has room for `count` and kVectorSlack, overwritten.
// REQUIRES: 1 <= keep <= count.
Threshold find_threshold(const std::uint32_t* magnitudes, std::uint64_t count, std::uint64_t keep,
                         std::uint32_t* spare);

// Drops the candidates that aren't among the largest.
void drop_smaller(Candidates& list, const Threshold& threshold);

// How many are larger.
std::uint64_t count_above(const std::uint32_t* magnitudes, std::uint64_t count, std::uint32_t least);

// Appends the magnitudes m with low <= m <= high to `out`, which may be `magnitudes` itself; returns them.
struct Range {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
};
std::uint64_t collect_range(const std::uint32_t* magnitudes, std::uint64_t count, const Range& range,
                            std::uint32_t* out);

std::uint32_t encode_chunk(const std::uint32_t* positions, std::uint32_t count, std::byte* out,
                           std::uint64_t out_bytes);
std::uint32_t golomb_bytes(const std::uint32_t* positions, std::uint32_t count);
std::uint32_t interpolate_chunk(const std::uint32_t* positions, std::uint32_t count, std::byte* out,
                                std::uint64_t out_bytes);
ChunkContent decode_chunk(const ChunkBytes& chunk, std::uint64_t begin, const DecodeTarget& target);

// A chunk's first bytes, and its lanes' streams.
struct Head {
  unsigned parameter = 0;
  unsigned lanes = 1;
  std::uint32_t first = 0;
  BitWindow streams[kMaxLanes] = {};
};

// Decodes a chunk's gaps in rounds over its lanes as long as nothing in them can be wrong, into the target;
// moves the streams and `next`, behind the last position. Returns how many it took of `gaps`: maybe none.
std::uint32_t decode_rounds(Head& head, std::uint32_t gaps, const DecodeTarget& target, std::uint64_t& next);

// Decodes a chunk in the interpolative code.
ChunkContent decode_interpolated(const ChunkBytes& chunk, std::uint64_t begin, const DecodeTarget& target);

// See Kernels.
Collected collect(const Addends& x, std::uint64_t from, std::uint32_t least, std::uint32_t* positions,
                  float* values);
void encode_values(float* values, std::uint64_t count, const ValueCode& code, std::byte* out);
std::uint64_t find_bad_value(const std::byte* codes, std::uint64_t count, const ValueCode& code);
void decode_values(const std::byte* codes, std::uint64_t count, const ValueCode& code, float* values);
void subtract_elements(float* left, const Elements& sent);
void scatter(const Elements& elements, const ScatterTarget& target);

}  // namespace DELTAWIRE_TARGET

}  // namespace deltawire::sparse
