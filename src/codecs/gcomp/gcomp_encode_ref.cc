// Reference kernels: the histogram, which says what a sample of a chunk holds, and encoding. Decoding is in
// gcomp_decode_ref.cc.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/little_endian.h"
#include "codecs/gcomp/gcomp_encode_ops.h"
#include "codecs/gcomp/gcomp_ops.h"

namespace deltawire::gcomp::DELTAWIRE_TARGET {

namespace {

template <Keep kKeep>
void count_values(const Values& chunk, std::uint32_t* counts) noexcept {
  const Classifier<kKeep> classify(chunk);
  const unsigned share = sample_share(chunk.count);
  const std::uint32_t group_elements = kLineElements << share;
  for (std::uint32_t group = 0; group * group_elements < chunk.count; ++group) {
    fetch_sampled(chunk, group, share);
    const std::uint32_t begin = sampled_element(group, share);
    for (std::uint32_t i = begin; i < begin + kLineElements && i < chunk.count; ++i) {
      const Classified value = classify(input_bits(chunk, i), i);
      ++counts[value.level * 256 + ((value.kept & kMagnitudeMask) >> kMantissaBits)];
    }
  }
}

void histogram(const Values& chunk, std::uint32_t* counts) {
  std::memset(counts, 0, kCounts * sizeof *counts);
  switch (chunk.rule.keep) {
    case Keep::kLevel: return count_values<Keep::kLevel>(chunk, counts);
    case Keep::kSignificance: return count_values<Keep::kSignificance>(chunk, counts);
    case Keep::kEverything: return count_values<Keep::kEverything>(chunk, counts);
  }
}

// A block on its way out. An encoder is a decoder's mirror: it goes from the last stretch to the first and
// writes upwards, so that a decoder goes forwards and reads downwards. A lane of codes holds at least 16 and
// at most 31 bits, one of mantissas at most 31, of which the lowest are read first; bits above them are
// rubbish until the end.
struct Writer {
  std::uint32_t codes[kMaxLanes] = {};
  unsigned held[kMaxLanes];
  std::uint32_t mantissas[kMaxMantissaLanes] = {};
  unsigned filled[kMaxMantissaLanes] = {};
  unsigned lanes = 1;
  unsigned mantissa_lanes = 0;  // 0: mantissas are whole bytes
  unsigned step = 1;            // of the values' Precision
  std::byte* at = nullptr;
};

// The values between two refills.
struct SourceStretch {
  std::uint32_t count = 0;
  std::uint32_t kept[kMaxStretch];
  std::uint16_t entries[kMaxStretch];
};

std::uint32_t exponent_of(std::uint32_t bits) noexcept {
  return (bits & kMagnitudeMask) >> kMantissaBits;
}

std::uint32_t sign_mantissa(std::uint32_t bits) noexcept {
  return (bits & kSignBit) >> 8 | (bits & kMantissaMask);
}

std::uint32_t slot_of(const Classified& value, const EncodeTable& table) noexcept {
  const std::uint32_t exponent = exponent_of(value.kept);
  return (value.level * kRows & table.levels[exponent]) | table.row[exponent];
}

// Classifies the values from `begin` on and looks up their codes; returns all their bits, or-ed.
template <Keep kKeep>
std::uint32_t classify_stretch(const Values& block, const Classifier<kKeep>& classify, std::uint32_t begin,
                               const EncodeTable& table, SourceStretch& stretch) noexcept {
  std::uint32_t any = 0;
  for (std::uint32_t i = 0; i < stretch.count; ++i) {
    const std::uint32_t bits = input_bits(block, begin + i);
    const Classified value = classify(bits, begin + i);
    if (block.residual != nullptr) block.residual[begin + i] = left_over(bits, value.kept);
    stretch.entries[i] = table.entry[slot_of(value, table)];
    stretch.kept[i] = value.kept;
    any |= value.kept;
  }
  return any;
}

void push_mantissas(const SourceStretch& stretch, Writer& writer) noexcept {
  std::byte* at = writer.at;
  for (std::uint32_t i = 0; i < stretch.count; ++i) {
    const unsigned lane = i & (writer.mantissa_lanes - 1);
    const unsigned width = writer.step * (stretch.entries[i] >> kEntryStepsShift);
    const std::uint32_t value = sign_mantissa(stretch.kept[i]) >> (kSignMantissaBits - width);
    const std::uint64_t x = std::uint64_t{writer.mantissas[lane]} << width | value;
    const unsigned n = writer.filled[lane] + width;
    // 1 if the oldest 32 bits must leave. They are written in any case, to where the next word goes.
    const unsigned leave = n / kMantissaWordBits;
    store_le(at, static_cast<std::uint32_t>(x >> n % kMantissaWordBits));
    at += leave * kMantissaWordBytes;
    writer.mantissas[lane] = static_cast<std::uint32_t>(x);
    writer.filled[lane] = n % kMantissaWordBits;
  }
  writer.at = at;
}

void append_mantissas(const SourceStretch& stretch, Writer& writer) noexcept {
  for (std::uint32_t i = 0; i < stretch.count; ++i) {
    store_le(writer.at, sign_mantissa(stretch.kept[i]));
    // Eight steps or none.
    writer.at += (stretch.entries[i] >> kEntryStepsShift) * kSignMantissaBytes / kLevels;
  }
}

// The codes of a stretch for each lane, one or two: the first one lowest.
void push_codes(const SourceStretch& stretch, Writer& writer) noexcept {
  std::byte* at = writer.at;
  for (unsigned lane = 0; lane < writer.lanes && lane < stretch.count; ++lane) {
    const unsigned first = stretch.entries[lane];
    const std::uint32_t other = lane + writer.lanes;
    const unsigned second = other < stretch.count ? stretch.entries[other] : 0U;
    const unsigned shift = first & kEntryLengthMask;
    const unsigned length = shift + (second & kEntryLengthMask);
    const std::uint32_t code =
        (first >> kEntryCodeShift & kEntryCodeMask) | (second >> kEntryCodeShift & kEntryCodeMask) << shift;
    const std::uint32_t x = writer.codes[lane];
    const unsigned n = writer.held[lane];
    const unsigned leave = (n + length) / (2 * kWordBits);  // as in push_mantissas
    store_le(at, static_cast<std::uint16_t>(x >> (n - kWordBits)));
    at += leave * kWordBytes;
    writer.codes[lane] = x << length | code;
    writer.held[lane] = n + length - leave * kWordBits;
  }
  writer.at = at;
}

void append_escapes(const SourceStretch& stretch, const EncodeTable& table, Writer& writer) noexcept {
  for (std::uint32_t i = 0; i < stretch.count; ++i) {
    if (stretch.entries[i] != table.escape) continue;
    *writer.at++ = static_cast<std::byte>(exponent_of(stretch.kept[i]));
  }
}

template <Keep kKeep>
std::uint32_t write_stretches(const Values& block, const EncodeTable& table, Writer& writer) noexcept {
  const Classifier<kKeep> classify(block);
  const std::uint32_t size = 2 * writer.lanes;
  SourceStretch stretch;
  std::uint32_t any = 0;
  for (std::uint32_t begin = (block.count - 1) / size * size;; begin -= size) {
    stretch.count = block.count - begin < size ? block.count - begin : size;
    any |= classify_stretch<kKeep>(block, classify, begin, table, stretch);
    if (writer.mantissa_lanes > 0) {
      push_mantissas(stretch, writer);
    } else {
      append_mantissas(stretch, writer);
    }
    push_codes(stretch, writer);
    append_escapes(stretch, table, writer);
    if (begin == 0) return any;
  }
}

void write_states(Writer& writer) noexcept {
  for (unsigned lane = 0; lane < writer.lanes; ++lane, writer.at += kStateBytes) {
    const std::uint32_t end = 1U << writer.held[lane];
    store_le(writer.at, end | (writer.codes[lane] & (end - 1)));
  }
  for (unsigned lane = 0; lane < writer.mantissa_lanes; ++lane, writer.at += kStateBytes) {
    const std::uint32_t end = 1U << writer.filled[lane];
    store_le(writer.at, end | (writer.mantissas[lane] & (end - 1)));
  }
}

EncodedBlock encode_block(const Values& block, const EncodeTable& table, std::byte* out) {
  Writer writer;
  for (unsigned& held : writer.held) held = kWordBits;
  writer.lanes = lanes_for(block.count);
  writer.mantissa_lanes = block.rule.in_bytes() ? 0 : mantissa_lanes_for(writer.lanes);
  writer.step = block.rule.precision.step;
  writer.at = out;
  std::uint32_t any = 0;
  switch (block.rule.keep) {
    case Keep::kLevel: any = write_stretches<Keep::kLevel>(block, table, writer); break;
    case Keep::kSignificance: any = write_stretches<Keep::kSignificance>(block, table, writer); break;
    case Keep::kEverything: any = write_stretches<Keep::kEverything>(block, table, writer); break;
  }
  const auto bytes = static_cast<std::uint32_t>(writer.at - out);
  write_states(writer);
  return {bytes, any == 0};
}

template <Keep kKeep>
void store_kept(const Values& values, std::byte* out) noexcept {
  const Classifier<kKeep> classify(values);
  for (std::uint32_t i = 0; i < values.count; ++i) {
    const std::uint32_t bits = input_bits(values, i);
    const Classified value = classify(bits, i);
    if (values.residual != nullptr) values.residual[i] = left_over(bits, value.kept);
    store_le(out + i * kValueBytes, value.kept);
  }
}

void store_values(const Values& values, std::byte* out) {
  switch (values.rule.keep) {
    case Keep::kLevel: return store_kept<Keep::kLevel>(values, out);
    case Keep::kSignificance: return store_kept<Keep::kSignificance>(values, out);
    case Keep::kEverything: return store_kept<Keep::kEverything>(values, out);
  }
}

}  // namespace

extern constexpr Kernels kKernels = {histogram,    encode_block, store_values,
                                     decode_block, nullptr,      decode_stored};

}  // namespace deltawire::gcomp::DELTAWIRE_TARGET
