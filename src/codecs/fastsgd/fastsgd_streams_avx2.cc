// Values: eight of a width are as many bytes, so that none waits for where the one before ended. Gaps: flags,
// lengths and codes of eight at a time, and two or four codes are joined before they are appended.
#include <cstddef>
#include <cstdint>

#include <immintrin.h>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

namespace {

constexpr std::uint32_t kValues = 8;  // that are written together
constexpr std::uint32_t kGaps = 8;
constexpr unsigned kFlagBitsInVectors = 2;
constexpr unsigned kBitsInWord = 56;  // that an Appender takes at a time

// Eight numbers of code_bits + 1 bits each, still in 16 bits.
__m128i numbers_of(const ChunkPairs& chunk, std::uint32_t at, unsigned code_bits) noexcept {
  const __m128i codes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(chunk.codes + at));
  const __m128i magnitudes = _mm_and_si128(codes, _mm_set1_epi16(0x7FFF));
  const __m128i offsets = _mm_sub_epi16(magnitudes, _mm_set1_epi16(static_cast<short>(chunk.range.lowest)));
  const __m128i signs =
      _mm_sll_epi16(_mm_srli_epi16(codes, 15), _mm_cvtsi32_si128(static_cast<int>(code_bits)));
  return _mm_or_si128(offsets, signs);
}

std::uint64_t low_half(__m128i bits) noexcept {
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(bits));
}

std::uint64_t high_half(__m128i bits) noexcept {
  return static_cast<std::uint64_t>(_mm_extract_epi64(bits, 1));
}

// Of up to 8 bits: as bytes.
std::byte* write_narrow(const ChunkPairs& chunk, unsigned code_bits, std::uint32_t end,
                        std::byte* out) noexcept {
  const std::uint64_t mask = std::uint64_t{0x0101010101010101} * ((1U << (code_bits + 1)) - 1);
  for (std::uint32_t i = 0; i < end; i += kValues) {
    const __m128i numbers = numbers_of(chunk, i, code_bits);
    store_le(out, static_cast<std::uint64_t>(_pext_u64(low_half(_mm_packus_epi16(numbers, numbers)), mask)));
    out += code_bits + 1;
  }
  return out;
}

// Of 9 to 12 bits: four at a time, whose end may lie inside a byte.
std::byte* write_wide(const ChunkPairs& chunk, unsigned code_bits, std::uint32_t end,
                      std::byte* out) noexcept {
  const std::uint64_t mask = std::uint64_t{0x0001000100010001} * ((1U << (code_bits + 1)) - 1);
  const unsigned half = 4 * (code_bits + 1);
  for (std::uint32_t i = 0; i < end; i += kValues) {
    const __m128i numbers = numbers_of(chunk, i, code_bits);
    const std::uint64_t low = _pext_u64(low_half(numbers), mask);
    const std::uint64_t high = _pext_u64(high_half(numbers), mask);
    store_le(out, low);
    store_le(out + half / 8, low >> half / 8 * 8 | high << half % 8);
    out += code_bits + 1;
  }
  return out;
}

struct Codes {
  __m256i bits;
  __m256i lengths;
};

// Flags, lengths and codes of up to four lengths.
struct GapCoder {
  __m256i least[3];  // the largest gaps that need no higher flag
  __m256i lengths;   // of the codes, by their flag
  unsigned flag_bits;

  GapCoder(const GapLengths& of, unsigned flag_bits_of_gaps) noexcept : flag_bits(flag_bits_of_gaps) {
    std::uint32_t total[8] = {};
    for (unsigned flag = 0; flag < 1U << flag_bits; ++flag) total[flag] = flag_bits + of.of_flag[flag];
    for (unsigned i = 0; i < 3; ++i) {
      // A flag that there isn't, or one that no gap needs: no gap is larger.
      const bool is_flag = i + 1 < 1U << flag_bits;
      const auto most = is_flag ? static_cast<int>((1U << of.of_flag[i]) - 1) : 0x7FFFFFFF;
      least[i] = _mm256_set1_epi32(most);
    }
    lengths = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(total));
  }

  Codes of(__m256i gaps) const noexcept {
    __m256i flags = _mm256_setzero_si256();
    for (const __m256i& most : least) flags = _mm256_sub_epi32(flags, _mm256_cmpgt_epi32(gaps, most));
    const __m256i bits =
        _mm256_or_si256(flags, _mm256_sll_epi32(gaps, _mm_cvtsi32_si128(static_cast<int>(flag_bits))));
    return {bits, _mm256_permutevar8x32_epi32(lengths, flags)};
  }
};

// The codes at even places, with those behind them at their ends.
Codes joined_pairs(const Codes& codes) noexcept {
  const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF);
  const __m256i length = _mm256_and_si256(codes.lengths, low);
  const __m256i behind = _mm256_srli_epi64(codes.bits, 32);
  return {_mm256_or_si256(_mm256_and_si256(codes.bits, low), _mm256_sllv_epi64(behind, length)),
          _mm256_add_epi64(length, _mm256_srli_epi64(codes.lengths, 32))};
}

// The same with words of 64 bits.
Codes joined_words(const Codes& words) noexcept {
  const __m256i behind = _mm256_unpackhi_epi64(words.bits, words.bits);
  const __m256i lengths = _mm256_unpackhi_epi64(words.lengths, words.lengths);
  return {_mm256_or_si256(words.bits, _mm256_sllv_epi64(behind, words.lengths)),
          _mm256_add_epi64(words.lengths, lengths)};
}

// Appends every kStep-th word.
template <unsigned kStep>
[[gnu::always_inline]] inline void append(const Codes& words, Appender& out) noexcept {
  alignas(32) std::uint64_t bits[4];
  alignas(32) std::uint64_t lengths[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(bits), words.bits);
  _mm256_store_si256(reinterpret_cast<__m256i*>(lengths), words.lengths);
  for (unsigned i = 0; i < 4; i += kStep) out.put(bits[i], static_cast<unsigned>(lengths[i]));
}

template <bool kFour>
std::uint32_t append_gaps(const ChunkPairs& chunk, const GapCoder& coder, Appender& out) noexcept {
  std::uint32_t i = 1;
  for (; i + kGaps <= chunk.pairs; i += kGaps) {
    const __m256i keys = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunk.keys + i));
    const __m256i before = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(chunk.keys + i - 1));
    const __m256i gaps = _mm256_sub_epi32(_mm256_sub_epi32(keys, before), _mm256_set1_epi32(1));
    const Codes pairs = joined_pairs(coder.of(gaps));
    if constexpr (kFour) {
      append<2>(joined_words(pairs), out);
    } else {
      append<1>(pairs, out);
    }
  }
  return i;
}

}  // namespace

std::byte* write_values(const ChunkPairs& chunk, unsigned code_bits, std::byte* out) {
  const std::uint32_t end = chunk.pairs / kValues * kValues;
  out = code_bits < 8 ? write_narrow(chunk, code_bits, end, out) : write_wide(chunk, code_bits, end, out);
  const ChunkPairs rest{chunk.keys + end, chunk.codes + end, chunk.pairs - end, chunk.range};
  return reference::write_values(rest, code_bits, out);
}

std::byte* write_gaps(const ChunkPairs& chunk, unsigned key_bits, unsigned flag_bits, std::byte* out) {
  if (flag_bits > kFlagBitsInVectors || 2 * (flag_bits + key_bits) > kBitsInWord) {
    return reference::write_gaps(chunk, key_bits, flag_bits, out);
  }
  const GapLengths lengths(key_bits, flag_bits);
  const GapCoder coder(lengths, flag_bits);
  Appender bits(out);
  std::uint32_t i = 4 * (flag_bits + key_bits) <= kBitsInWord ? append_gaps<true>(chunk, coder, bits)
                                                              : append_gaps<false>(chunk, coder, bits);
  for (; i < chunk.pairs; ++i) {
    const std::uint32_t gap = chunk.gap_at(i);
    const std::uint8_t flag = lengths.flag_of[bit_width(gap)];
    bits.put(flag | std::uint64_t{gap} << flag_bits, flag_bits + lengths.of_flag[flag]);
  }
  return bits.finish();
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
