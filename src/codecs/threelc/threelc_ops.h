// The kernels of 3lc: what a faster implementation replaces. Each is a pure function of its arguments, and
// every implementation must give the reference's bytes, residuals and faults exactly.
//
// REQUIRES of all: the calling thread in a FloatEnvironment; chunks of 1 to kChunkElements elements. No
// kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "codecs/kernels/base3.h"
#include "codecs/kernels/chunk_bytes.h"
#include "codecs/kernels/rice.h"
#include "codecs/target_id.h"

namespace deltawire::threelc {

inline constexpr std::uint32_t kChunkElements = 40960;
using base3::kDigitsPerByte;
using base3::kMaxPackedByte;
using base3::kRowBytes;
using base3::kRowElements;
using base3::kZeroByte;
using base3::packed_bytes;

inline constexpr std::uint32_t kFirstRun = 243;   // codes 243..255 stand for 2..14 zero bytes
inline constexpr std::uint32_t kLongestRun = 14;  // zero bytes in one run code

inline constexpr std::uint32_t kRiceHeaderBytes = 3;  // u8 parameter, u16 number of positions
inline constexpr unsigned kRiceMaxParameter = 15;
inline constexpr unsigned kRiceEscapeBits = 16;  // of a raw gap; a chunk has fewer than 2^16 elements

enum class ChunkMode : std::uint8_t { kBase3 = 0, kZeroRuns = 1, kRice = 2 };

// The paper's m, and the smallest float that is at least m/2 in exact arithmetic (Inf for m = 0, so that no
// value reaches it).
struct Scale {
  float m = 0;
  float half = 0;
};

// From the largest |x| of the part. m may come out as Inf: check before use.
[[gnu::always_inline]] inline Scale scale_for(float largest, float s) noexcept {
  const float m = largest * s;
  const auto bits = bit_cast<std::uint32_t>(m);
  if (bits == 0) return {m, bit_cast<float>(kInfinityBits)};
  // Below 2^-125 floats are 2^-149 apart and their bits count in that unit, so an odd m has no exact half;
  // rounding up keeps x >= half the same as x >= m/2.
  if (bits < 0x01000000) return {m, bit_cast<float>((bits + 1) >> 1)};
  return {m, m * 0.5F};
}

// Bytes of a bit map of `count` elements: whole words of 64 bits.
[[gnu::always_inline]] constexpr std::uint32_t map_bytes(std::uint32_t count) noexcept {
  return (count + 63) / 64 * 8;
}

// Bit i % 64 of little-endian word i / 64 belongs to element i of the chunk.
struct DigitMaps {
  std::byte* nonzero = nullptr;  // null: not wanted
  std::byte* negative = nullptr;
};

// What to quantize is in + residual.
struct QuantizeInput {
  const float* in = nullptr;
  const float* residual = nullptr;  // null: 0
  float* left = nullptr;            // the new residual's place, may be `in` or `residual`; null: not wanted
  std::uint32_t count = 0;
  Scale scale;
};

// `count` elements of a chunk, from element `at` on.
[[gnu::always_inline]] inline QuantizeInput part_of(const QuantizeInput& chunk, std::uint32_t at,
                                                    std::uint32_t count) noexcept {
  return {chunk.in + at, chunk.residual != nullptr ? chunk.residual + at : nullptr,
          chunk.left != nullptr ? chunk.left + at : nullptr, count, chunk.scale};
}

// What a quantized chunk says of the modes' sizes.
struct Quantized {
  std::uint32_t nonzeros = 0;    // digits that aren't 0; not counted, and 0, without maps
  std::uint32_t zero_bytes = 0;  // packed bytes that are kZeroByte
  std::uint32_t zero_runs = 0;   // runs of those
};

struct RiceCode {
  std::uint32_t nonzeros = 0;
  unsigned parameter = 0;  // low bits of a gap that are written as they are
};

// What is wrong with a chunk that a decoder refuses.
namespace faults {

using base3::faults::kBadPad;
using base3::faults::kNonzeroWithoutM;
using deltawire::faults::kTruncated;
inline constexpr ChunkFault kUnknownMode = {"unknown mode byte"};
inline constexpr ChunkFault kTrailingBytes = {"bytes follow the last element"};
inline constexpr ChunkFault kBadByte = {"a byte above 242 in base 3^5"};
// A zero code after one that wasn't full.
inline constexpr ChunkFault kSplitRun = {"a zero run is split where it should not be"};
inline constexpr ChunkFault kRunTooLong = {"a zero run goes past the chunk's end"};
inline constexpr ChunkFault kRiceParameter = {"Rice parameter above 15"};
inline constexpr ChunkFault kRiceCount = {"more positions than elements"};
inline constexpr ChunkFault kRiceEscape = {"a raw gap that has a shorter code"};
inline constexpr ChunkFault kRicePosition = {"a position outside the chunk"};
inline constexpr ChunkFault kRicePadding = {"bits follow the last sign"};

}  // namespace faults

struct DecodeTarget {
  float* slot = nullptr;
  std::uint32_t count = 0;
  float value = 0;          // m * scale: what a digit of +1 stands for
  bool zeros_only = false;  // m is 0
  bool accumulate = false;  // slot += instead of slot =
  bool streamed = false;  // the part's values will have left the caches before they are read: kStreamedBytes
};

struct Kernels {
  // Quantizes a chunk: base 3^5 to `packed` (packed_bytes(count)), bit maps to `maps` where wanted
  // (map_bytes(count) each), the new residual to input.left.
  Quantized (*quantize)(const QuantizeInput& input, std::byte* packed, const DigitMaps& maps);

  // Copies packed bytes to `out`, which has room for as many, and replaces runs of zero bytes by run codes;
  // returns the bytes written. If these are as many, none has changed: one zero byte is its own code.
  std::uint32_t (*zero_runs)(const std::byte* packed, std::uint32_t bytes, std::byte* out);

  // Writes header, positions and signs to `out` if they take less than `limit` bytes, for which there is
  // room. Returns the bytes written, or `limit`. REQUIRES: limit > kRiceHeaderBytes.
  std::uint32_t (*rice)(const DigitMaps& maps, std::uint32_t count, const RiceCode& code, std::byte* out,
                        std::uint32_t limit);

  // Decodes one chunk of any mode. Reads inside `chunk` alone, writes inside the slot's `count` values alone;
  // on a fault the slot's content is unspecified.
  Fault (*decode)(const ChunkBytes& chunk, const DecodeTarget& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

// Other targets leave to the reference what they have no vectors for.
namespace reference {
std::uint32_t rice(const DigitMaps& maps, std::uint32_t count, const RiceCode& code, std::byte* out,
                   std::uint32_t limit);
}  // namespace reference

// The kernels of the target that a file is compiled for.
namespace DELTAWIRE_TARGET {
Quantized quantize(const QuantizeInput& input, std::byte* packed, const DigitMaps& maps);
std::uint32_t zero_runs(const std::byte* packed, std::uint32_t bytes, std::byte* out);
std::uint32_t rice(const DigitMaps& maps, std::uint32_t count, const RiceCode& code, std::byte* out,
                   std::uint32_t limit);
Fault decode_chunk(const ChunkBytes& chunk, const DecodeTarget& target);
}  // namespace DELTAWIRE_TARGET

}  // namespace deltawire::threelc
