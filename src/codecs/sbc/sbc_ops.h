// The kernels of sbc: what a faster implementation replaces. Each is a pure function of its arguments, and
// every implementation must give the reference's bytes, residuals and faults exactly.
//
// REQUIRES of all: the calling thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/float_bits.h"
#include "codecs/kernels/chunk_bytes.h"
#include "codecs/kernels/rice.h"
#include "codecs/target_id.h"

namespace deltawire::sbc {

inline constexpr std::uint32_t kChunkPositions = 16384;  // in every chunk of a part but the last
inline constexpr std::uint64_t kMaxElements = 0xFFFFFFFF;

inline constexpr std::uint32_t kEmptyHeadBytes = 3;  // u8 code, u16 positions
inline constexpr std::uint32_t kHeadBytes = 7;       // and u32 first position
inline constexpr std::uint32_t kLaneLengthBytes = 2;
inline constexpr unsigned kMaxLanes = 8;
inline constexpr unsigned kMaxParameter = 24;  // low bits of a gap that are written as they are
inline constexpr unsigned kEscapeBits = 32;    // of a raw gap

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
  std::uint64_t count = 0;          // at most kMaxElements
  std::uint64_t keep = 0;           // 1 to count
};

// Room that select() needs in each array of Candidates: twice what is kept, so that making room pays for
// itself; some more, so that small parts need none; at least a block beyond the elements.
inline constexpr std::uint64_t kSelectBlock = 16;
[[gnu::always_inline]] constexpr std::uint64_t candidate_room(std::uint64_t count,
                                                              std::uint64_t keep) noexcept {
  const std::uint64_t usual = 2 * keep + 1024;
  const std::uint64_t all = count + kSelectBlock;
  return usual < all ? usual : all;
}

// Streams over which an encoder spreads the gaps of a chunk.
[[gnu::always_inline]] constexpr unsigned lanes_for(std::uint32_t positions) noexcept {
  return positions < 512 ? 1 : positions < 4096 ? 4 : 8;
}

// More than any chunk's head and the padding of its lanes take.
inline constexpr std::uint32_t kMaxChunkOverhead =
    kHeadBytes + kLaneLengthBytes * (kMaxLanes - 1) + kMaxLanes;

// What a decoder found wrong with a chunk.
enum class Fault : std::uint8_t {
  kNone,
  kTruncated,      // the bytes end before the chunk does
  kParameter,      // Rice parameter above 24
  kLanes,          // a number of lanes that isn't 1, 4 or 8, or the unused bit of the first byte
  kUnusedCode,     // a Rice parameter or lanes where there is no gap to use them
  kCount,          // more than 16,384 positions
  kOrder,          // the first position isn't behind those of the chunk before
  kPosition,       // a position outside the part
  kEscape,         // a raw gap that had a shorter code
  kPadding,        // set bits or whole bytes after the last code of a lane
  kTrailingBytes,  // bytes after a chunk without gaps
};

struct DecodeTarget {
  float* slot = nullptr;    // null: check alone
  std::uint64_t count = 0;  // of the part; at most kMaxElements
  float value = 0;          // the scaled mean
  bool accumulate = false;  // slot += instead of slot =
};

// What a chunk that decoded without a fault has.
struct ChunkContent {
  Fault fault = Fault::kNone;
  std::uint32_t positions = 0;
  std::uint32_t head_bytes = 0;
  std::uint64_t code_bits = 0;  // of all gaps, without padding
  std::uint64_t next = 0;       // the position after the last one
};

struct Kernels {
  // Leaves in `positive` and `negative` (candidate_room() each; zeros are neither) the `keep` largest of each
  // sign of x = in + residual by (|x| descending, position ascending), in the order of positions, or all
  // where there are fewer. An infinite or NaN x counts as larger than every finite one of the sign that it
  // bears.
  void (*select)(const SelectInput& input, Candidates& positive, Candidates& negative);

  // Sum of magnitudes as doubles, in the order that spec.md fixes.
  double (*sum)(const std::uint32_t* magnitudes, std::uint64_t count);

  // residual += in.
  void (*add)(const float* in, float* residual, std::uint64_t count);

  // Writes a chunk of 0 to kChunkPositions positions to `out`, which has at least
  // kMaxChunkOverhead + 7 * count bytes or what all chunks of the part can take. Returns the bytes written.
  std::uint32_t (*encode_chunk)(const std::uint32_t* positions, std::uint32_t count, std::byte* out,
                                std::uint64_t out_bytes);

  // Decodes one chunk, whose positions must be >= begin. Reads inside `chunk` alone, writes at positions
  // inside the slot alone; on a fault the slot's content is unspecified.
  ChunkContent (*decode_chunk)(const ChunkBytes& chunk, std::uint64_t begin, const DecodeTarget& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

// The reference's coding of positions, in a file of its own.
namespace DELTAWIRE_TARGET {
std::uint32_t encode_chunk(const std::uint32_t* positions, std::uint32_t count, std::byte* out,
                           std::uint64_t out_bytes);
ChunkContent decode_chunk(const ChunkBytes& chunk, std::uint64_t begin, const DecodeTarget& target);
}  // namespace DELTAWIRE_TARGET

}  // namespace deltawire::sbc
