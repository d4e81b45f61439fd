// Kernels for AVX2.
#include "codecs/fastsgd/fastsgd_avx2.h"

#include "base/prefetch.h"
#include "codecs/kernels/element_bits.h"
#include "codecs/kernels/vectors_avx2.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// Which values are sent.
namespace {

constexpr std::uint32_t kLanes = 8;
constexpr std::uint32_t kGroup = 64;  // values that are looked at together
constexpr std::uint32_t kFew = 8;     // of a group: fewer are taken one by one

// Where pairs are written: behind those that are there. Whole vectors may be.
struct PairOutput {
  std::uint32_t* keys = nullptr;
  float* values = nullptr;
};

// All bits of the lanes below `count`.
__m256i first_lanes(std::uint32_t count) noexcept {
  return _mm256_cmpgt_epi32(all_of(count), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

__m256i places(std::uint64_t at) noexcept {
  return _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), all_of(static_cast<std::uint32_t>(at)));
}

// Writes the chosen of eight pairs; returns how many they are.
std::uint32_t put(__m256i keys, __m256i bits, unsigned mask, const PairOutput& out,
                  std::uint32_t behind) noexcept {
  const __m256i order = compaction_of(mask);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.keys + behind), compacted(keys, order));
  _mm256_storeu_ps(out.values + behind, _mm256_castsi256_ps(compacted(bits, order)));
  return popcount(mask);
}

// A group of values, made of the cut.
struct Vectors {
  __m256i below_cut;  // magnitudes are compared as signed numbers, of which they are no negative ones
  __m256i bits[kGroup / kLanes];

  explicit Vectors(std::uint32_t cut) noexcept : below_cut(all_of(cut - 1)) {}

  // Whether none of a row is dropped.
  static bool are_all_sent(const float* values, std::uint32_t count, std::uint32_t cut) noexcept {
    const __m256i least = all_of(cut);
    for (std::uint32_t i = 0; i < count; i += kGroup) {
      __m256i dropped = _mm256_setzero_si256();
      for (std::uint32_t j = i; j < i + kGroup && j < count; j += kLanes) {
        const __m256i lanes = first_lanes(count - j < kLanes ? count - j : kLanes);
        const __m256i row = _mm256_castps_si256(_mm256_maskload_ps(values + j, lanes));
        const __m256i magnitudes = _mm256_and_si256(row, all_of(kMagnitudeMask));
        dropped = _mm256_or_si256(dropped, _mm256_and_si256(_mm256_cmpgt_epi32(least, magnitudes), lanes));
      }
      if (_mm256_testz_si256(dropped, dropped) == 0) return false;
    }
    return true;
  }

  // Which of eight x are sent.
  unsigned chosen_of(__m256i x) const noexcept {
    const __m256i magnitudes = _mm256_and_si256(x, all_of(kMagnitudeMask));
    const __m256i kept = _mm256_cmpgt_epi32(magnitudes, below_cut);
    return static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(kept)));
  }

  // Which of 64 are sent; x is left where there is a residual.
  template <bool kResidual>
  [[gnu::always_inline]] std::uint64_t look_at(const PairInput& input, std::uint64_t at) noexcept {
    std::uint64_t chosen = 0;
    for (unsigned i = 0; i < kGroup / kLanes; ++i) {
      const std::uint64_t first = at + i * kLanes;
      __m256 x = _mm256_loadu_ps(input.in + first);
      if constexpr (kResidual) {
        x = _mm256_add_ps(x, _mm256_loadu_ps(input.residual + first));
        _mm256_storeu_ps(input.left + first, x);
      }
      bits[i] = _mm256_castps_si256(x);
      chosen |= std::uint64_t{chosen_of(bits[i])} << i * kLanes;
    }
    return chosen;
  }

  // Writes these pairs; returns how many they are.
  template <bool kResidual, bool kKeys>
  [[gnu::always_inline]] std::uint32_t take(const PairInput& input, std::uint64_t at, std::uint64_t chosen,
                                            const PairOutput& out) const noexcept {
    std::uint32_t pairs = 0;
    for (unsigned i = 0; i < kGroup / kLanes; ++i) {
      const std::uint64_t first = at + i * kLanes;
      const __m256i keys =
          kKeys ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(input.keys + first)) : places(first);
      pairs += put(keys, bits[i], static_cast<unsigned>(chosen >> i * kLanes & 0xFF), out, pairs);
    }
    return pairs;
  }

  // The pairs of up to kLanes values.
  template <bool kResidual, bool kKeys>
  std::uint32_t rest(const PairInput& input, std::uint64_t at, std::uint32_t count,
                     const PairOutput& out) const noexcept {
    const __m256i lanes = first_lanes(count);
    __m256 x = _mm256_maskload_ps(input.in + at, lanes);
    if constexpr (kResidual) {
      x = _mm256_add_ps(x, _mm256_maskload_ps(input.residual + at, lanes));
      _mm256_maskstore_ps(input.left + at, lanes, x);
    }
    __m256i keys = places(at);
    if constexpr (kKeys) keys = _mm256_maskload_epi32(reinterpret_cast<const int*>(input.keys + at), lanes);
    const __m256i of_rest = _mm256_castps_si256(x);
    return put(keys, of_rest, chosen_of(of_rest) & ((1U << count) - 1), out, 0);
  }
};

template <bool kResidual, bool kKeys>
std::uint32_t take_few(const PairInput& input, std::uint64_t at, std::uint64_t chosen,
                       const PairOutput& out) noexcept {
  const std::uint32_t pairs = set_bits(chosen, 0, out.keys);
  for (std::uint32_t i = 0; i < pairs; ++i) {
    const std::uint64_t place = at + out.keys[i];
    out.values[i] = kResidual ? input.left[place] : input.in[place];
    out.keys[i] = kKeys ? input.keys[place] : static_cast<std::uint32_t>(place);
  }
  return pairs;
}

template <bool kResidual, bool kKeys>
Collected collect_chunk(const PairInput& input, std::uint64_t& at, std::uint32_t cut,
                        const Staging& staging) noexcept {
  Vectors vectors(cut);
  std::uint32_t pairs = 0;
  while (input.count - at >= kGroup && pairs + kGroup <= kChunkPairs) {
    const PairOutput out{staging.keys + pairs, staging.values + pairs};
    const std::uint64_t chosen = vectors.look_at<kResidual>(input, at);
    if (chosen != 0) {
      pairs += popcount(chosen) <= kFew ? take_few<kResidual, kKeys>(input, at, chosen, out)
                                        : vectors.take<kResidual, kKeys>(input, at, chosen, out);
    }
    at += kGroup;
  }
  while (at < input.count && pairs < kChunkPairs) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t room = kChunkPairs - pairs;
    std::uint32_t count = left < kLanes ? static_cast<std::uint32_t>(left) : kLanes;
    count = room < count ? room : count;
    const PairOutput out{staging.keys + pairs, staging.values + pairs};
    pairs += vectors.rest<kResidual, kKeys>(input, at, count, out);
    at += count;
  }
  return {staging.keys, staging.values, pairs, at};
}

}  // namespace

Collected collect(const PairInput& input, std::uint64_t& at, std::uint32_t cut, const Staging& staging) {
  if (input.keys != nullptr) {
    const std::uint64_t left = input.count - at;
    const std::uint32_t row = left < kChunkPairs ? static_cast<std::uint32_t>(left) : kChunkPairs;
    if (!Vectors::are_all_sent(input.in + at, row, cut)) {
      return collect_chunk<false, true>(input, at, cut, staging);
    }
    const Collected all{input.keys + at, input.in + at, row, at + row};
    at += row;
    return all;
  }
  return input.residual != nullptr ? collect_chunk<true, false>(input, at, cut, staging)
                                   : collect_chunk<false, false>(input, at, cut, staging);
}

// A code is a logarithm, rounded up. A polynomial is exact enough for all values but the few close to a
// threshold, which are compared with it.
namespace {

// How far a code may be off, in octaves of x and in codes. The logarithms of x, of the sum and of the last
// value, and with it the scale, are off by 2.6e-5 each, their exponents apart, and the octaves between sum
// and last value by 8e-6 more; the scale has a rounding of 6e-8, of up to 2,047 codes, and so have the code
// and the sums that make it.
constexpr float kDoubtfulPart = 1.4e-4F;
constexpr float kDoubtfulWhole = 5e-4F;

// As it stands in the number.
__m256i exponent_of(__m256i magnitudes) noexcept {
  return _mm256_srli_epi32(magnitudes, 23);
}

// log2(m) for 1 <= m < 2 is (a m + b) m + c with the numbers of the 8th in which m lies; off by less than
// 2.6e-5 and the roundings. Interpolated at Chebyshev's nodes.
constexpr float kEighthSquare[8] = {-0.63980967F, -0.5120694F,  -0.4190979F,  -0.34933081F,
                                    -0.29564136F, -0.25344309F, -0.21967581F, -0.1922342F};
constexpr float kEighthSlope[8] = {2.7186027F, 2.4319084F, 2.1999519F, 2.0084147F,
                                   1.8475736F, 1.7105943F, 1.5925312F, 1.4897181F};
constexpr float kEighthStart[8] = {-2.0787673F, -1.9178658F, -1.773158F,  -1.6416749F,
                                   -1.521197F,  -1.4100214F, -1.3068125F, -1.2105033F};

// A polynomial of the second degree in the mantissa for each 8th of its range.
struct Pieces {
  __m256 square = _mm256_loadu_ps(kEighthSquare);
  __m256 slope = _mm256_loadu_ps(kEighthSlope);
  __m256 start = _mm256_loadu_ps(kEighthStart);

  // REQUIRES: magnitudes of normal numbers.
  __m256 of_mantissa(__m256i magnitudes) const noexcept {
    const __m256i piece = _mm256_srli_epi32(magnitudes, 20);  // its lowest 3 bits
    const __m256 m = _mm256_castsi256_ps(
        _mm256_or_si256(_mm256_and_si256(magnitudes, all_of(0x007FFFFF)), all_of(0x3F800000)));
    const __m256 steep = _mm256_add_ps(_mm256_mul_ps(_mm256_permutevar8x32_ps(square, piece), m),
                                       _mm256_permutevar8x32_ps(slope, piece));
    return _mm256_add_ps(_mm256_mul_ps(steep, m), _mm256_permutevar8x32_ps(start, piece));
  }
};

struct Quantizer {
  const Codebook& book;
  Pieces
      codes{};  // below the code of the sum, which has the same exponent; as many too few as may be doubtful
  __m256i exponent_of_sum;
  __m256 per_octave;
  __m256 doubtful;  // codes

  explicit Quantizer(const Codebook& codebook) noexcept : book(codebook) {
    const __m256i sum = all_of(book.values[0]);
    const __m256i least = all_of(book.values[book.last]);
    exponent_of_sum = exponent_of(sum);
    const __m256 part_of_sum = codes.of_mantissa(sum);
    const __m256 octaves =
        _mm256_add_ps(octaves_below_sum(least), _mm256_sub_ps(part_of_sum, codes.of_mantissa(least)));
    const __m256 all = _mm256_set1_ps(static_cast<float>(book.last));
    per_octave = book.last > 0 ? _mm256_div_ps(all, octaves) : _mm256_setzero_ps();
    const __m256 off = _mm256_add_ps(_mm256_mul_ps(per_octave, _mm256_set1_ps(kDoubtfulPart)),
                                     _mm256_set1_ps(kDoubtfulWhole));
    doubtful = _mm256_add_ps(off, off);
    const __m256 downward = _mm256_sub_ps(_mm256_setzero_ps(), per_octave);
    codes.square = _mm256_mul_ps(codes.square, downward);
    codes.slope = _mm256_mul_ps(codes.slope, downward);
    codes.start = _mm256_sub_ps(_mm256_mul_ps(_mm256_sub_ps(part_of_sum, codes.start), per_octave), off);
  }

  __m256 octaves_below_sum(__m256i magnitudes) const noexcept {
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(exponent_of_sum, exponent_of(magnitudes)));
  }

  // Compares those of the mask with their thresholds.
  __m256i decided(__m256i low, __m256i magnitudes, unsigned mask) const noexcept {
    alignas(32) std::int32_t codes_of_lanes[kLanes];
    alignas(32) std::uint32_t magnitudes_of_lanes[kLanes];
    store(codes_of_lanes, low);
    store(magnitudes_of_lanes, magnitudes);
    for (; mask != 0; mask &= mask - 1) {
      const unsigned lane = countr_zero(mask);
      const std::int32_t near = codes_of_lanes[lane];
      std::uint32_t tried = near < 0 ? 0 : static_cast<std::uint32_t>(near);
      tried = tried < book.last ? tried : book.last;
      codes_of_lanes[lane] =
          static_cast<std::int32_t>(tried + (magnitudes_of_lanes[lane] < book.values[tried] ? 1 : 0));
    }
    return load(codes_of_lanes);
  }

  __m256i codes_of(__m256i magnitudes) const noexcept {
    const __m256 least = _mm256_add_ps(_mm256_mul_ps(octaves_below_sum(magnitudes), per_octave),
                                       codes.of_mantissa(magnitudes));
    const __m256 low = _mm256_ceil_ps(least);
    const __m256 high = _mm256_ceil_ps(_mm256_add_ps(least, doubtful));
    const auto asked = static_cast<unsigned>(_mm256_movemask_ps(_mm256_cmp_ps(low, high, _CMP_NEQ_UQ)));
    const __m256i found = _mm256_cvtps_epi32(low);
    return asked == 0 ? found : decided(found, magnitudes, asked);
  }
};

// Leaves x less its code's value.
void subtract(const PairInput& input, const Codebook& book, const Collected& pairs,
              const std::uint16_t* codes) noexcept {
  for (std::uint32_t i = 0; i < pairs.pairs; ++i) {
    const std::uint32_t sign = bit_cast<std::uint32_t>(pairs.values[i]) & ~kMagnitudeMask;
    const std::uint32_t value = book.values[codes[i] & kMaxCode] | sign;
    input.left[pairs.keys[i]] = pairs.values[i] - bit_cast<float>(value);
  }
}

// Sixteen codes and their signs, in 16 bits each.
__m256i signed_codes(const __m256i (&bits)[2], const __m256i (&codes)[2]) noexcept {
  const __m256i signs = _mm256_packs_epi32(_mm256_srai_epi32(bits[0], 31), _mm256_srai_epi32(bits[1], 31));
  const __m256i packed = _mm256_packus_epi32(codes[0], codes[1]);
  const __m256i sign = _mm256_set1_epi16(static_cast<short>(fastsgd::kSignBit));
  return _mm256_permute4x64_epi64(_mm256_or_si256(packed, _mm256_and_si256(signs, sign)), 0xD8);
}

}  // namespace

CodeRange quantize(const PairInput& input, const Codebook& book, const Collected& pairs,
                   std::uint16_t* codes_of_pairs) {
  constexpr std::uint32_t kTogether = 2 * kLanes;
  if (book.values[book.last] < kSmallestNormal) {
    return kernels_for(TargetId::kReference).quantize(input, book, pairs, codes_of_pairs);
  }
  const Quantizer quantizer(book);
  __m256i lowest = all_of(kMaxCode);
  __m256i highest = _mm256_setzero_si256();
  const auto sixteen = [&](const float* values, std::uint16_t* numbers) {
    __m256i bits[2];
    __m256i codes[2];
    for (unsigned i = 0; i < 2; ++i) {
      bits[i] = _mm256_castps_si256(_mm256_loadu_ps(values + i * kLanes));
      codes[i] = quantizer.codes_of(_mm256_and_si256(bits[i], all_of(kMagnitudeMask)));
      lowest = _mm256_min_epi32(lowest, codes[i]);
      highest = _mm256_max_epi32(highest, codes[i]);
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(numbers), signed_codes(bits, codes));
  };
  const std::uint64_t ahead = input.keys != nullptr ? input.count - pairs.next : 0;
  std::uint32_t i = 0;
  for (; i + kTogether <= pairs.pairs; i += kTogether) {
    sixteen(pairs.values + i, codes_of_pairs + i);
    if (i >= ahead) continue;
    // Fetch the next chunk's pairs while this one's are coded.
    prefetch_far(input.in + pairs.next + i);
    prefetch_far(input.keys + pairs.next + i);
  }
  if (i < pairs.pairs) {
    float rest[kTogether];  // and the last one again, which doesn't widen the range of codes
    for (std::uint32_t j = 0; j < kTogether; ++j) {
      rest[j] = pairs.values[i + j < pairs.pairs ? i + j : pairs.pairs - 1];
    }
    sixteen(rest, codes_of_pairs + i);
  }
  if (input.left != nullptr) subtract(input, book, pairs, codes_of_pairs);
  std::uint32_t low[kLanes];
  std::uint32_t high[kLanes];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(low), lowest);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(high), highest);
  CodeRange range{low[0], high[0]};
  for (unsigned j = 1; j < kLanes; ++j) {
    range.lowest = low[j] < range.lowest ? low[j] : range.lowest;
    range.highest = high[j] > range.highest ? high[j] : range.highest;
  }
  return range;
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
