// Reference kernels: levels, the histogram and encoding. Decoding is in gcomp_decode_ref.cc.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kLineElements = 16;  // a cache line of float32
constexpr std::uint32_t kSampleElements = 16384;

std::uint32_t bits_of(float x) noexcept {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

// The largest level l with |significance| >= 2^(6 l - 1) * 2^(exponent of x), exactly: rounding 6 l bits off
// moves x by up to half a step of 2^(6 l - 23) * 2^(exponent of x), which is then no more than one unit in
// the last place of the significance. Inf is above all of them, NaN below. REQUIRES: x is a normal number.
std::uint32_t significance_level(std::uint32_t exponent, float significance) noexcept {
  const std::uint32_t magnitude = bits_of(significance) & kMagnitudeMask;
  if (magnitude >= kExponentMask) return magnitude == kExponentMask ? kLevels - 1 : 0;
  const std::uint32_t seen = magnitude >> kMantissaBits;
  return static_cast<std::uint32_t>(seen >= exponent + kCutBitsPerLevel - 1) +
         static_cast<std::uint32_t>(seen >= exponent + 2 * kCutBitsPerLevel - 1) +
         static_cast<std::uint32_t>(seen >= exponent + 3 * kCutBitsPerLevel - 1);
}

// What becomes of one value.
struct Classified {
  std::uint32_t symbol = 0;
  std::uint32_t kept = 0;  // its bits as a decoder will see them
};

// Sorts values by a rule. A copy of the rule's numbers, which no store through another pointer can change: so
// they stay in registers.
template <Keep kKeep>
class Classifier {
 public:
  explicit Classifier(const Values& values) noexcept
      : significance_(values.significance), uniform_level_(values.rule.uniform_level()) {}

  // REQUIRES: `bits` are those of element i, with its residual.
  Classified operator()(std::uint32_t bits, std::uint32_t i) const noexcept {
    const std::uint32_t exponent = (bits & kMagnitudeMask) >> kMantissaBits;
    if constexpr (kKeep == Keep::kEverything) {
      const bool tiny = exponent == 0 && bits != 0;
      return {symbol_of(exponent, 0) + (tiny ? kTinySymbol : 0), bits};
    }
    if (exponent >= 254) [[unlikely]]
      return highest(bits, exponent);
    std::uint32_t level = uniform_level_;
    if constexpr (kKeep == Keep::kSignificance) level = significance_level(exponent, significance_[i]);
    const unsigned cut = kCutBitsPerLevel * level;
    const std::uint32_t low = ~(0xFFFFFFFFU << cut);
    // To nearest, ties to even; a carry goes into the exponent.
    const std::uint32_t rounded = (bits + (low >> 1) + (bits >> cut & low & 1)) & ~low;
    // Without branches: zeros come in no order that a processor could foretell.
    const std::uint32_t normal = 0U - (exponent != 0 ? 1U : 0U);
    const std::uint32_t kept = rounded & normal;
    if constexpr (kKeep == Keep::kLevel) level = 0;
    return {symbol_of((kept & kMagnitudeMask) >> kMantissaBits, level & normal), kept};
  }

 private:
  // Of exponents 254, where a carry could make an Inf, and 255, where a cut could turn a NaN into one.
  Classified highest(std::uint32_t bits, std::uint32_t exponent) const noexcept {
    const unsigned cut = exponent == 255 ? 0 : kCutBitsPerLevel * uniform_level_;
    return {symbol_of(exponent, 0), bits & 0xFFFFFFFFU << cut};
  }

  const float* significance_;
  std::uint32_t uniform_level_;
};

std::uint32_t input_bits(const Values& values, std::uint32_t i) noexcept {
  const float in = values.in[i];
  return values.residual != nullptr ? bits_of(in + values.residual[i]) : bits_of(in);
}

// log2 of the share that is sampled: 1 for every 2^share lines.
unsigned sample_share(std::uint32_t count) noexcept {
  unsigned share = 0;
  while (count > kSampleElements << share) ++share;
  return share;
}

// Which line of group `group` is sampled. A constant stride would see the same columns of a matrix again and
// again.
std::uint32_t sampled_line(std::uint32_t group, unsigned share) noexcept {
  if (share == 0) return 0;
  std::uint32_t hash = group * 0x9E3779B1U;
  hash ^= hash >> 15;
  hash *= 0x85EBCA77U;
  return hash >> (32 - share);
}

template <Keep kKeep>
void count_symbols(const Values& chunk, std::uint32_t* counts) noexcept {
  const Classifier<kKeep> classify(chunk);
  const unsigned share = sample_share(chunk.count);
  const std::uint32_t group_elements = kLineElements << share;
  for (std::uint32_t group = 0; group * group_elements < chunk.count; ++group) {
    const std::uint32_t begin = group * group_elements + sampled_line(group, share) * kLineElements;
    for (std::uint32_t i = begin; i < begin + kLineElements && i < chunk.count; ++i) {
      ++counts[classify(input_bits(chunk, i), i).symbol];
    }
  }
}

void histogram(const Values& chunk, std::uint32_t* counts) {
  std::memset(counts, 0, kPlainSymbols * sizeof *counts);
  switch (chunk.rule.keep) {
    case Keep::kLevel: return count_symbols<Keep::kLevel>(chunk, counts);
    case Keep::kSignificance: return count_symbols<Keep::kSignificance>(chunk, counts);
    case Keep::kEverything: return count_symbols<Keep::kEverything>(chunk, counts);
  }
}

// What the cut leaves: exact, as it is at most half a step of `kept`'s last bit and a multiple of x's. NaN
// and Inf can't be corrected later.
float left_over(std::uint32_t bits, std::uint32_t kept) noexcept {
  if ((bits & kExponentMask) == kExponentMask) return 0;
  return bit_cast<float>(bits) - bit_cast<float>(kept);
}

// Classifies the values [begin, end) and looks up their codes; returns all their bits, or-ed.
template <Keep kKeep>
std::uint32_t classify_values(const Values& block, std::uint32_t begin, std::uint32_t end,
                              const EncodeTable& table, BlockParts& parts) noexcept {
  const Classifier<kKeep> classify(block);
  std::uint32_t any = 0;
  for (std::uint32_t i = begin; i < end; ++i) {
    const std::uint32_t bits = input_bits(block, i);
    const Classified value = classify(bits, i);
    if (block.residual != nullptr) block.residual[i] = left_over(bits, value.kept);
    parts.values[i] = value.kept;
    parts.codes[i] = table.code[value.symbol];
    any |= value.kept;
  }
  return any;
}

// Appends numbers to a stream of bits, the lowest bit first, with whole words: up to 8 bytes past the end.
class MantissaWriter {
 public:
  explicit MantissaWriter(std::byte* at) noexcept : at_(at) {}

  // REQUIRES: bits <= 48.
  void put(std::uint64_t value, unsigned bits) noexcept {
    pending_ |= value << filled_;
    filled_ += bits;
    store_le(at_, pending_);
    at_ += filled_ / 8;
    pending_ >>= filled_ & 56;
    filled_ %= 8;
  }

  const std::byte* end() const noexcept { return at_ + (filled_ > 0 ? 1 : 0); }

 private:
  std::byte* at_;
  std::uint64_t pending_ = 0;
  unsigned filled_ = 0;  // bits pending; fewer than 8 between calls
};

// The highest `width` bits of sign and mantissa.
std::uint64_t kept_mantissa(std::uint32_t value, unsigned width) noexcept {
  const std::uint32_t sign_mantissa = (value & kSignBit) >> 8 | (value & kMantissaMask);
  return sign_mantissa >> (kSignMantissaBits - width);
}

// Appends sign and mantissa of the values [begin, end), two at a time.
void write_mantissas(const BlockParts& parts, std::uint32_t begin, std::uint32_t end,
                     MantissaWriter& writer) noexcept {
  std::uint32_t i = begin;
  for (; i + 1 < end; i += 2) {
    const unsigned first = parts.codes[i] >> kCodeMantissaShift;
    const unsigned second = parts.codes[i + 1] >> kCodeMantissaShift;
    writer.put(kept_mantissa(parts.values[i], first) | kept_mantissa(parts.values[i + 1], second) << first,
               first + second);
  }
  if (i < end) {
    const unsigned width = parts.codes[i] >> kCodeMantissaShift;
    writer.put(kept_mantissa(parts.values[i], width), width);
  }
}

// Fills values, codes and mantissas, in stretches that stay in the first cache.
template <Keep kKeep>
void split(const Values& block, const EncodeTable& table, BlockParts& parts) noexcept {
  constexpr std::uint32_t kStretch = 1024;
  MantissaWriter writer(parts.mantissas);
  std::uint32_t any = 0;
  for (std::uint32_t begin = 0; begin < block.count; begin += kStretch) {
    const std::uint32_t end = block.count - begin < kStretch ? block.count : begin + kStretch;
    any |= classify_values<kKeep>(block, begin, end, table, parts);
    write_mantissas(parts, begin, end, writer);
  }
  parts.zeros = any == 0;
  parts.mantissa_bytes = static_cast<std::uint32_t>(writer.end() - parts.mantissas);
}

// Runs backwards, as a decoder's mirror: what it reads first is pushed last. A lane holds at least 16 and at
// most 31 bits, of which the lowest are read first; bits above them are rubbish until the end.
void push_codes(std::uint32_t count, BlockParts& parts) noexcept {
  const unsigned lanes = lanes_for(count);
  std::uint32_t pushed[kMaxLanes] = {};
  unsigned held[kMaxLanes];
  for (unsigned& bits : held) bits = kWordBits;
  std::uint16_t* const end = parts.words + kWordRoom;
  std::uint16_t* at = end;
  for (std::uint32_t i = count; i-- > 0;) {
    const unsigned lane = i % lanes;
    const std::uint32_t code = parts.codes[i] & 0xFFFF;
    const unsigned length = parts.codes[i] >> kCodeLengthShift & kCodeLengthMask;
    const std::uint32_t x = pushed[lane];
    const unsigned n = held[lane];
    // 1 if the oldest 16 bits must leave. They are written in any case, to where the next word goes.
    const unsigned leave = (n + length) / (2 * kWordBits);
    at[-1] = static_cast<std::uint16_t>(x >> (n - kWordBits));
    at -= leave;
    pushed[lane] = x << length | code;
    held[lane] = n + length - leave * kWordBits;
  }
  for (unsigned lane = 0; lane < lanes; ++lane) {
    const std::uint32_t top = 1U << held[lane];
    parts.states[lane] = top | (pushed[lane] & (top - 1));
  }
  parts.word_count = static_cast<std::uint32_t>(end - at);
}

void encode_block(const Values& block, const EncodeTable& table, BlockParts& parts) {
  switch (block.rule.keep) {
    case Keep::kLevel: split<Keep::kLevel>(block, table, parts); break;
    case Keep::kSignificance: split<Keep::kSignificance>(block, table, parts); break;
    case Keep::kEverything: split<Keep::kEverything>(block, table, parts); break;
  }
  if (!parts.zeros) push_codes(block.count, parts);
}

}  // namespace

extern constexpr Kernels kKernels = {histogram, encode_block, decode_block, decode_stored};

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
