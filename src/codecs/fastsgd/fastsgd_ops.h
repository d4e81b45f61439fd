// The kernels of fastsgd: what a faster implementation replaces. Each is a pure function of its arguments,
// and every implementation must give the reference's bytes, residuals and faults exactly.
//
// REQUIRES of all: the calling thread in a FloatEnvironment. No kernel allocates, locks or keeps anything.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/bit_functions.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codecs/kernels/chunk_bytes.h"
#include "codecs/kernels/pairs.h"
#include "codecs/target_id.h"

namespace deltawire::fastsgd {

inline constexpr std::uint32_t kChunkPairs = 16384;
inline constexpr std::uint32_t kMaxCode = 2047;  // the largest L
inline constexpr std::uint32_t kCodes = kMaxCode + 1;
inline constexpr unsigned kMaxCodeBits = 11;  // of L - base
inline constexpr unsigned kMaxKeyBits = 32;   // of a gap between keys
inline constexpr unsigned kMaxFlagBits = 5;

inline constexpr std::uint32_t kEmptyHeadBytes = 2;  // a chunk without pairs is its count alone
inline constexpr std::uint32_t kHeadBytes = 9;  // u16 pairs, u16 code base and bits, u8 key bits, u32 key

inline constexpr std::uint32_t kStoreSlack = 8;  // bytes that write() may touch behind a chunk

inline constexpr std::uint32_t kSumBlock = 65536;  // elements

// What L stands for: sum / b^L, where powers[L] = b^L in float64, made by repeated multiplication.
[[gnu::always_inline]] inline float code_value(double sum, const double* powers,
                                               std::uint32_t code) noexcept {
  return static_cast<float>(sum / powers[code]);
}

// Finds the code of a magnitude: start[bits >> kStartShift] is the smallest L that a magnitude in this range
// can have, where the search begins. Only ranges between the last value and the first are filled.
inline constexpr unsigned kStartShift = 18;
inline constexpr std::uint32_t kStarts = (kInfinityBits >> kStartShift) + 1;

struct Codebook {
  const std::uint32_t* values = nullptr;  // bits of code_value(L), L = 0 ... last; not 0, never growing
  const std::uint16_t* starts = nullptr;  // kStarts entries
  std::uint32_t last = 0;                 // the threshold: smaller magnitudes than its value are dropped
};

// How many numbers kernels may write behind the last one, so that whole vectors are stored.
inline constexpr std::uint32_t kVectorSlack = 16;

// Room for the pairs of one chunk on their way to the bytes; arrays of kChunkPairs and kVectorSlack.
struct Staging {
  std::uint32_t* keys = nullptr;
  float* values = nullptr;
  std::uint16_t* codes = nullptr;  // L, and the sign in kSignBit
};
inline constexpr std::uint16_t kSignBit = 0x8000;

// The pairs of a chunk that are sent: in their Staging, or in the input itself if none between them is
// dropped.
struct Collected {
  const std::uint32_t* keys = nullptr;
  const float* values = nullptr;
  std::uint32_t pairs = 0;
  std::uint64_t next = 0;  // the input's first value behind them, which the next chunk begins with
};

// Below it codes are not guessed by a logarithm, as values are not exact enough.
inline constexpr std::uint32_t kSmallestNormal = 0x00800000;

struct CodeRange {
  std::uint32_t lowest = 0;
  std::uint32_t highest = 0;
};

struct ChunkPairs {
  const std::uint32_t* keys = nullptr;
  const std::uint16_t* codes = nullptr;
  std::uint32_t pairs = 0;
  CodeRange range;

  [[gnu::always_inline]] std::uint32_t gap_at(std::uint32_t i) const noexcept {
    return keys[i] - keys[i - 1] - 1;
  }
};

// Lengths of gaps in bits: flag f of l bits announces ceil((f + 1) * longest / 2^l) bits (section 3.3).
struct GapLengths {
  std::uint8_t of_flag[1U << kMaxFlagBits] = {};
  std::uint8_t flag_of[kMaxKeyBits + 1] = {};    // the first flag with room for this many bits
  std::uint64_t least[1U << kMaxFlagBits] = {};  // the smallest gap that needs this flag

  [[gnu::always_inline]] GapLengths(unsigned longest, unsigned flag_bits) noexcept {
    const unsigned flags = 1U << flag_bits;
    for (unsigned flag = 0; flag < flags; ++flag) {
      least[flag] = flag > 0 ? std::uint64_t{1} << of_flag[flag - 1] : 0;
      of_flag[flag] = static_cast<std::uint8_t>(((flag + 1) * longest + flags - 1) / flags);
    }
    std::uint8_t flag = 0;
    for (unsigned bits = 0; bits <= longest; ++bits) {
      while (of_flag[flag] < bits) ++flag;
      flag_of[bits] = flag;
    }
  }
};

// What is wrong with a chunk that a decoder refuses.
namespace faults {

using deltawire::faults::kNoRoom;
using deltawire::faults::kTruncated;
inline constexpr ChunkFault kTrailingBytes = {"bytes follow a chunk without pairs"};
// More than kChunkPairs, too few before the last chunk, or none in one of several.
inline constexpr ChunkFault kPairCount = {"a number of pairs that this chunk can't have"};
inline constexpr ChunkFault kHead = {"more code bits or key bits than there are"};  // or a reserved bit
inline constexpr ChunkFault kCode = {"a code beyond the threshold"};                // or of value 0
// The smallest isn't the base, or the largest doesn't need the bits.
inline constexpr ChunkFault kCodeRange = {"the codes don't fill the range that the head states"};
inline constexpr ChunkFault kFlag = {"a length flag that isn't the smallest"};
inline constexpr ChunkFault kKeyBits = {"no gap is as long as the head states"};
inline constexpr ChunkFault kKey = {"a key that is out of order or outside the tensor"};
inline constexpr ChunkFault kPadding = {"bits follow the last code or the last key"};

}  // namespace faults

struct Head {
  std::uint32_t pairs = 0;
  std::uint32_t base = 0;  // the smallest code
  unsigned code_bits = 0;  // of a code less the base
  unsigned key_bits = 0;   // of the longest gap
  std::uint32_t first_key = 0;
};

// Where the streams of a chunk with pairs lie.
struct ChunkStreams {
  BitWindow values;
  BitWindow flags;
  BitWindow gaps;        // to the end of the chunk
  bool are_cut = false;  // it ends before the values and flags do: no window is one
};

[[gnu::always_inline]] inline ChunkStreams streams_of(const ChunkBytes& chunk, const Head& head,
                                                      unsigned flag_bits) noexcept {
  const std::uint32_t value_bytes = (head.pairs * (head.code_bits + 1) + 7) / 8;
  const std::uint32_t flag_bytes = head.key_bits > 0 ? ((head.pairs - 1) * flag_bits + 7) / 8 : 0;
  const std::uint32_t bytes = chunk.bytes - kHeadBytes;
  if (value_bytes + flag_bytes > bytes) return {.values = {}, .flags = {}, .gaps = {}, .are_cut = true};
  const std::byte* const at = chunk.at + kHeadBytes;
  return {.values = {at, value_bytes},
          .flags = {at + value_bytes, flag_bytes},
          .gaps = {at + value_bytes + flag_bytes, bytes - value_bytes - flag_bytes}};
}

struct DecodeRules {
  double sum = 0;
  const double* powers = nullptr;
  std::uint32_t last_code = 0;  // the spec's largest L
  unsigned flag_bits = 0;
};

struct DecodeTarget : PairTarget {
  bool is_last = true;  // the part ends with the last of the chunks that are given
};

// A chunk whose keys are known and in the tensor.
struct KeyedValues {
  const std::uint32_t* keys = nullptr;
  Head head{};  // its pairs, at least one, base and code bits
  BitWindow values;
};

// Chunks that follow on each other, for kernels that read two at a time.
struct ChunkRow {
  const ChunkBytes* at = nullptr;
  std::uint32_t chunks = 0;
};

// How many chunks of a row have been decoded, and what is wrong with the next.
struct Decoded {
  std::uint32_t chunks = 0;
  Fault fault = nullptr;
};

struct Counts {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

struct Totals {
  double sum = 0;
  std::uint32_t least = 0;  // of pairs: the smallest magnitude above 0, as bits; of a dense part 0
};

struct Kernels {
  // sum of |x| over the part, x = in + residual, by blocks as spec.md states. Not finite exactly if an x
  // isn't.
  Totals (*sum)(const PairInput& input);

  // The smallest magnitude of `least` or more, as bits; kInfinityBits if there is none.
  std::uint32_t (*smallest)(const PairInput& input, std::uint32_t least);

  // How many x have magnitude bits of at least `low`, and of at least `high`.
  Counts (*count_at_least)(const PairInput& input, std::uint32_t low, std::uint32_t high);

  // The pairs of the next chunk: from value `at` on those with magnitude bits >= cut, up to
  // kChunkPairs; moves `at` behind the last value that was looked at. With a residual, x is left for all of
  // them.
  Collected (*collect)(const PairInput& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging);

  // Codes of the pairs, into an array with room for kVectorSlack more; with a residual, x less the code's
  // value is left. REQUIRES: there are some.
  CodeRange (*quantize)(const PairInput& input, const Codebook& book, const Collected& pairs,
                        std::uint16_t* codes);

  // Writes a chunk and returns its bytes, which sizes() has made room for; content of the kStoreSlack bytes
  // behind them is unspecified afterwards.
  std::uint32_t (*write)(const ChunkPairs& chunk, unsigned flag_bits, std::byte* out);

  // Decodes chunks up to the first with a fault; the first is the part's first if target.least_key is 0.
  // Reads inside the chunks alone, writes inside the target alone; on a fault what the target holds is
  // unspecified.
  Decoded (*decode)(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target);

  // A chunk's values alone; returns the address behind them. Room as for write().
  std::byte* (*write_values)(const ChunkPairs& chunk, unsigned code_bits, std::byte* out);

  // Hands out a chunk's pairs; the target's least key is the caller's. Reads and writes as decode().
  // REQUIRES: room for them, if the sink is kPairs.
  Fault (*place_values)(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target);
};

// One target's kernels. Those of the reference are what the others are compared with.
const Kernels& kernels_for(TargetId target) noexcept;

// The reference's streams: other targets leave to them what they have no vectors for.
namespace reference {
std::byte* write_values(const ChunkPairs& chunk, unsigned code_bits, std::byte* out);
std::byte* write_gaps(const ChunkPairs& chunk, unsigned key_bits, unsigned flag_bits, std::byte* out);
}  // namespace reference

// What kernels are made of, in files of their own.
namespace DELTAWIRE_TARGET {

Collected collect(const PairInput& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging);
CodeRange quantize(const PairInput& input, const Codebook& book, const Collected& pairs,
                   std::uint16_t* codes);

std::uint32_t write_chunk(const ChunkPairs& chunk, unsigned flag_bits, std::byte* out);

// A chunk's two streams; each returns the address behind it.
std::byte* write_values(const ChunkPairs& chunk, unsigned code_bits, std::byte* out);
std::byte* write_gaps(const ChunkPairs& chunk, unsigned key_bits, unsigned flag_bits, std::byte* out);

// Reads a chunk's head, the only part of a chunk that can be checked alone: of chunks before the last, which
// are full, and of the last, which has at least one pair unless it is also the first.
Fault read_head(const ChunkBytes& chunk, bool is_first, bool is_last, Head& head);

Decoded decode_row(const ChunkRow& row, const DecodeRules& rules, DecodeTarget& target);

Fault place_values(const KeyedValues& chunk, const DecodeRules& rules, DecodeTarget& target);

// What the vector kernels decode with.
//
// A chunk's flags and gaps. What shows whether they are as they must be is added up on the way.
struct GapStream {
  ChunkStreams streams;
  unsigned flag_bits = 0;
  unsigned key_bits = 0;
  std::uint32_t masks[8] = {};  // the bits that a gap has, by its flag
  std::uint32_t least[8] = {};  // the smallest gap of each flag
  bool has_wrong_flag = false;
  std::uint32_t all_gaps = 0;  // or of them
};
inline constexpr unsigned kVectorFlagBits = 3;  // in a GapStream at most
inline constexpr unsigned kVectorKeyBits = 23;  // the keys of a tile go up by less than 2^32 then

// Calls `call` with the bits of a flag, 1 to kVectorFlagBits, as its template's argument.
template <class Call>
[[gnu::always_inline]] inline auto for_flag_bits(unsigned flag_bits, const Call& call) noexcept {
  switch (flag_bits) {
    case 1: return call.template operator()<1>();
    case 2: return call.template operator()<2>();
    default: return call.template operator()<kVectorFlagBits>();
  }
}

inline constexpr std::uint32_t kTile = 256;  // gaps that are decoded together

// `count` keys that follow on `key`, which becomes the last of them, maybe outside the tensor. Whole vectors
// are written.
struct KeyRun {
  GapStream* gaps = nullptr;
  std::uint64_t key = 0;
  std::uint32_t count = 0;  // kTile, or the rest of the chunk
  std::uint32_t* keys = nullptr;
};

void open_gaps(GapStream& gaps, unsigned key_bits, unsigned flag_bits);
void read_keys(KeyRun& run);

// What numbers stand for: values, scaled and with their signs. A number is a code less the base, and above
// its bits the sign. Filled by open_values, as far as there are numbers.
struct ValueTables {
  float of_number[2 * kCodes];
};

// A chunk's values.
struct ValueStream {
  BitWindow stream;
  unsigned code_bits = 0;
  std::uint32_t allowed = 0;  // codes
  std::uint32_t lowest = kMaxCode;
  std::uint32_t highest = 0;
  ValueTables* tables = nullptr;
};

void open_values(ValueStream& values, const DecodeRules& rules, const Head& head, float scale);

// The next `count` values, at most kTile and not 0; up to kTile are written. All but the last time `count` is
// kTile.
void read_values(ValueStream& values, std::uint32_t count, float* out);

}  // namespace DELTAWIRE_TARGET

// Bits from the lowest on. A store always takes 8 bytes, so that no branch depends on how full the word is:
// past the end there must be room for kStoreSlack bytes, which sizes() asks for.
class Appender {
 public:
  [[gnu::always_inline]] explicit Appender(std::byte* out) noexcept : out_(out) {}

  // REQUIRES: bits <= 56 and value < 2^bits.
  [[gnu::always_inline]] void put(std::uint64_t value, unsigned bits) noexcept {
    pending_ |= value << filled_;
    filled_ += bits;
    store_le(out_, pending_);
    const unsigned whole = filled_ / 8;
    out_ += whole;
    pending_ >>= whole * 8;
    filled_ %= 8;
  }

  // Fills the last byte with zero bits, which the last store has done; returns the address behind it.
  [[gnu::always_inline]] std::byte* finish() noexcept { return out_ + (filled_ > 0 ? 1 : 0); }

 private:
  std::byte* out_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;
};

}  // namespace deltawire::fastsgd
