// How many bits keys take: against the exact expectation and against the paper's formula.
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::fastsgd_keys_test {
namespace {

using testing::codec_of;
using testing::Encoded;

// `pairs` ones, the gaps between them geometrically distributed: random positions of that density.
Pairs geometric(double density, std::uint64_t pairs) {
  CounterRng random(static_cast<std::uint64_t>(1 / density));
  Pairs drawn;
  drawn.values.assign(pairs, 1.0F);
  for (std::uint64_t i = 0; i < pairs; ++i) {
    const double gap = std::floor(std::log1p(-random.next_uniform()) / std::log1p(-density));
    drawn.dimension += static_cast<std::uint64_t>(gap);
    drawn.keys.push_back(static_cast<std::uint32_t>(drawn.dimension++));
  }
  return drawn;
}

std::uint64_t key_bits_of(const Codec& codec, const Encoded& part, std::uint64_t count) {
  std::vector<Section> sections;
  EXPECT_TRUE(codec.describe(part.view(), count, sections));
  for (const Section& section : sections) {
    if (section.name == "keys") return section.bits;
  }
  return 0;
}

// Bits of a key whose gap is geometric, given that no gap has more than `longest` bits: the flag, and for
// each length the chance that the gap fits it and none shorter.
double expected_bits(double density, int longest, int l) {
  const auto below = [density](int bits) { return -std::expm1(std::exp2(bits) * std::log1p(-density)); };
  double bits = l;
  double shorter = 0;
  for (int flag = 1; flag <= 1 << l; ++flag) {
    const int length = static_cast<int>(std::ceil(flag * longest / std::exp2(l)));
    bits += length * (below(length) - shorter) / below(longest);
    shorter = below(length);
  }
  return bits;
}

TEST(FastsgdKeys, BitsAreTheExactExpectationAndNearThePapersFormula) {
  constexpr std::uint64_t kChunks = 4;
  constexpr std::uint64_t kChunk = 16384;
  for (const double density : {0.1, 0.01, 0.001}) {
    const Pairs drawn = geometric(density, kChunks * kChunk);
    const auto pairs = static_cast<double>(drawn.keys.size());
    const TensorView view{drawn.values.data(), drawn.values.size(), DType::kF32, drawn.keys.data(),
                          drawn.dimension};
    for (int l = 1; l <= 5; ++l) {
      const auto codec = codec_of("fastsgd:tau=2047,l=" + std::to_string(l));
      const Encoded part = *testing::encode_view(*codec, view);
      ASSERT_EQ(part.chunk_ends.size(), kChunks);
      const double per_key =
          static_cast<double>(key_bits_of(*codec, part, drawn.dimension)) / (pairs - kChunks);
      double expected = 0;
      for (std::size_t i = 0; i < kChunks; ++i) {
        const std::size_t head = i == 0 ? 0 : part.chunk_ends[i - 1];
        expected += expected_bits(density, std::to_integer<int>(part.payload[head + 4]), l) / kChunks;
      }
      EXPECT_NEAR(per_key, expected, 0.02) << density << " l=" << l;
      const double paper = std::ceil(std::log2(static_cast<double>(drawn.dimension) / pairs)) + l;
      RecordProperty("bits_" + std::to_string(density) + "_l" + std::to_string(l),
                     std::to_string(per_key) + " expected " + std::to_string(expected) + " paper " +
                         std::to_string(paper));
      EXPECT_NEAR(per_key / paper, 1, l == 2 ? 0.08 : 0.3) << density << " l=" << l;
    }
  }
}

}  // namespace
}  // namespace deltawire::fastsgd_keys_test
