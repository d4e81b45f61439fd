// The kernels of qsgd. REQUIRES of all: the thread in a FloatEnvironment; chunks of 1 to kChunkElements
// elements. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float_bits.h"
#include "codecs/kernels/addends.h"
#include "codecs/kernels/chunk_bytes.h"
#include "codecs/kernels/draws.h"
#include "codecs/kernels/elias.h"
#include "codecs/kernels/spread.h"
#include "codecs/target_id.h"

namespace deltawire::qsgd {

inline constexpr std::uint64_t kChunkElements = 65536;
inline constexpr std::uint32_t kNormBytes = 4;

enum class Coding : std::uint8_t { kGamma, kOmega };

// How a chunk is cut and coded.
struct Plan {
  std::uint32_t levels = 0;  // s, 1 to 65,535
  std::uint32_t bucket = 0;  // elements that share a norm; divides kChunkElements
  Coding coding = Coding::kGamma;
};

[[gnu::always_inline]] inline std::uint64_t buckets_of(std::uint64_t count, const Plan& plan) noexcept {
  return count / plan.bucket + (count % plan.bucket != 0 ? 1 : 0);
}

[[gnu::always_inline]] inline EliasBits code_of(std::uint32_t number, const Plan& plan) noexcept {
  return plan.coding == Coding::kGamma ? gamma_bits_of(number) : omega_bits_of(number);
}

// What a decoder found wrong with a chunk.
enum class Fault : std::uint8_t {
  kNone,
  kTruncated,  // the bytes end before the chunk does
  kNorm,       // a norm that is negative or not finite
  kPosition,   // a gap past the end of its bucket
  kLevel,      // a level above s
  kPadding,    // set bits or whole bytes after the last code
};

// A decoded chunk: what is wrong with it, or what its bits are for.
struct Decoded {
  Fault fault = Fault::kNone;
  std::uint64_t gap_bits = 0;
  std::uint64_t signs = 0;
  std::uint64_t level_bits = 0;
};

struct DecodeTarget {
  float* slot = nullptr;  // null: read only
  std::uint32_t count = 0;
  float scale = 1;
  bool accumulate = false;  // slot += instead of slot =; a level of 0 leaves it as it is
};

struct Kernels {
  // left = x where that is wanted. Returns what is known of all |x|.
  Spread (*sum_up)(const Addends& x);

  // Writes the norms, one for each bucket, and the codes of x, whose levels are drawn; left, where that is
  // wanted, = what they leave. Returns the bytes written. REQUIRES: no |x| is above its bucket's norm; `out`
  // has `room` bytes, enough for all.
  std::uint64_t (*encode)(const Addends& x, const Draws& draws, const Plan& plan, const float* norms,
                          std::byte* out, std::uint64_t room);

  // Decodes a chunk of any bytes. Reads inside `chunk` alone, writes inside the slot's `count` values alone;
  // on a fault the slot's content is unspecified.
  Decoded (*decode)(const ChunkBytes& chunk, const Plan& plan, const DecodeTarget& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

}  // namespace deltawire::qsgd
