// That the kernels for Rice codes are the reference's where words of the stream, or of the maps, end:
// escapes, last codes, chunks that end too early or too late.
#include <algorithm>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/kernels/rice_automaton.h"
#include "codecs/threelc/threelc_testing.h"

namespace deltawire::threelc::threelc_rice_kernels_test {
namespace {

class ThreelcRiceKernels : public KernelsOfTarget {};

INSTANTIATE_TEST_SUITE_P(Targets, ThreelcRiceKernels, ::testing::ValuesIn(testing::beyond_reference()),
                         testing::target_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ThreelcRiceKernels);  // a build may have the reference alone

struct Digits {
  std::vector<float> values;

  void append(std::uint64_t gap, bool negative) {
    values.insert(values.end(), gap, 0.0F);
    values.push_back(negative ? -1.0F : 1.0F);
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>(values.size()); }
};

Quantization maps_of(const Digits& digits) {
  return quantize(kernels_for(TargetId::kReference), digits.values, digits.values, 0, 1, true);
}

Fault decode(const Kernels& kernels, const std::vector<std::byte>& chunk, bool accumulate, float fill,
             std::vector<float>& slot) {
  std::fill(slot.begin(), slot.end(), fill);
  const DecodeTarget target{slot.data(), static_cast<std::uint32_t>(slot.size()), 0.3F, false, accumulate,
                            false};
  return kernels.decode({chunk.data(), static_cast<std::uint32_t>(chunk.size())}, target);
}

// Slots hold no byte more than the chunk's elements: sanitizers see what is written behind them.
void expect_same_decoding(const Kernels& kernels, const std::vector<std::byte>& chunk, std::uint32_t count) {
  std::vector<float> expected(count);
  std::vector<float> found(count);
  for (const bool accumulate : {false, true}) {
    const Fault fault = decode(kernels_for(TargetId::kReference), chunk, accumulate, 0.1F, expected);
    ASSERT_EQ(decode(kernels, chunk, accumulate, 0.1F, found), fault) << count;
    if (fault == Fault::kNone) {
      ASSERT_TRUE(testing::same_bits(found, expected)) << count;
    }
  }
}

void expect_same_coding(const Kernels& kernels, Quantization maps, std::uint32_t count, unsigned parameter,
                        const std::vector<std::byte>& chunk) {
  std::vector<std::byte> coded(chunk.size());
  coded.resize(kernels.rice({maps.nonzero.data(), maps.negative.data()}, count,
                            {maps.quantized.nonzeros, parameter}, coded.data(),
                            static_cast<std::uint32_t>(coded.size())));
  ASSERT_EQ(chunk_of_mode(ChunkMode::kRice, coded), chunk) << count << " parameter " << parameter;
}

// Gaps around the shortest escape between short ones, often and seldom: they begin at every bit of a word.
TEST_P(ThreelcRiceKernels, EscapesAmongDenseCodes) {
  for (std::uint64_t seed = 0; seed < 900; ++seed) {
    const auto parameter = static_cast<unsigned>(seed % 3);
    const std::uint64_t rarity = seed / 3 % 3 == 0 ? 16 : 512;  // often none or a single one in a chunk
    CounterRng random(seed);
    Digits digits;
    while (digits.count() < 1500U << parameter) {
      const std::uint64_t draw = random.next();
      const std::uint64_t low = draw / 7 % (1U << parameter);
      const std::uint64_t unary = draw % rarity == 0 ? 20 + draw / 512 % 20 : draw / 512 % 3;
      digits.append(unary << parameter | low, draw / 65536 % 2 == 0);
    }
    const Quantization maps = maps_of(digits);
    const std::vector<std::byte> chunk = chunks_of(maps, digits.count(), parameter)[2];
    ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, digits.count()));
    ASSERT_NO_FATAL_FAILURE(expect_same_coding(kernels_, maps, digits.count(), parameter, chunk));
  }
}

// Streams of every length: the last code ends at every bit of a word, some just where it ends. With a header
// that says one digit more or less, a byte less or more, a bit set behind the end, and elements that end
// before the last digit.
TEST_P(ThreelcRiceKernels, LastCodes) {
  for (const unsigned parameter : {0U, 1U, 2U, 3U, 7U, 15U}) {
    CounterRng random(parameter);
    Digits digits;
    for (unsigned codes = 1; codes <= 130; ++codes) {
      const std::uint64_t draw = random.next();
      const std::uint64_t most = std::min(2U << parameter, 300U);
      digits.append(draw % (most + 1), draw >> 63 != 0);
      const std::uint32_t count = digits.count();
      const Quantization maps = maps_of(digits);
      const std::vector<std::byte> chunk = chunks_of(maps, count, parameter)[2];
      ASSERT_NO_FATAL_FAILURE(expect_same_coding(kernels_, maps, count, parameter, chunk));
      for (const std::uint32_t elements : {count, count + 1, count - 1, count / 2}) {
        if (elements == 0) continue;
        ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, elements));
      }
      for (const int digits_more : {-1, 1}) {
        std::vector<std::byte> other = chunk;
        other[2] = static_cast<std::byte>(static_cast<int>(codes) + digits_more);
        ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, other, count));
      }
      std::vector<std::byte> other = chunk;
      other.back() |= std::byte{0x80};
      ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, other, count));
      other = chunk;
      other.pop_back();
      ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, other, count));
      other = chunk;
      other.insert(other.end(), 1 + codes % 20, std::byte{0});
      ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, other, count));
    }
  }
}

// Ones alone, zeros alone, and both in turn, behind a header that promises many digits: no kernel goes on for
// ever, or beyond its memory.
TEST_P(ThreelcRiceKernels, StreamsWithoutAnEnd) {
  for (unsigned parameter = 0; parameter <= 4; ++parameter) {
    for (const unsigned fill : {0x00U, 0xFFU, 0x01U, 0x7FU, 0xAAU}) {
      for (const std::uint32_t nonzeros : {1U, 3U, 64U, 2000U}) {
        std::vector<std::byte> chunk(600, static_cast<std::byte>(fill));
        chunk[0] = static_cast<std::byte>(ChunkMode::kRice);
        chunk[1] = static_cast<std::byte>(parameter);
        chunk[2] = static_cast<std::byte>(nonzeros % 256);
        chunk[3] = static_cast<std::byte>(nonzeros / 256);
        for (const std::uint32_t count : {2000U, 4000U, 40960U}) {
          ASSERT_NO_FATAL_FAILURE(expect_same_decoding(kernels_, chunk, count));
        }
      }
    }
  }
}

// A few codes, bit by bit, as spec.md has them.
TEST(RiceBytes, ABytesBitsOneByOne) {
  constexpr const RiceBytes<1>& kTable = kRiceBytes<1>;
  const auto next = [](unsigned byte, unsigned place) {
    return static_cast<unsigned>(kTable.next[byte] >> (place * kPlaceBits) & 0xFFFF) / kPlaceBits;
  };
  const auto digits = [](unsigned byte, unsigned place) {
    const unsigned found = byte * kMostPlaces + place;
    return std::vector<int>(kTable.digits[found], kTable.digits[found] + kTable.elements[found]);
  };
  // 1, 0 1 1: two zeros, a low bit of one, the sign of -1; then 0 0 0: +1 at once; then 1: two zeros.
  EXPECT_EQ(digits(0b1000'1101, 0), (std::vector<int>{0, 0, 0, kNegativeDigit, kPositiveDigit, 0, 0}));
  EXPECT_EQ(next(0b1000'1101, 0), 0U);
  // From before a sign: -1, then six pairs of zeros and what ends them; a low bit is next.
  std::vector<int> zeros(13, 0);
  zeros[0] = kNegativeDigit;
  EXPECT_EQ(digits(0b0111'1111, 2), zeros);
  EXPECT_EQ(next(0b0111'1111, 2), 1U);
  EXPECT_EQ(digits(0xFF, 0), std::vector<int>(16, 0));
}

}  // namespace
}  // namespace deltawire::threelc::threelc_rice_kernels_test
