// terngrad: its digits, that it is right on average, clipping, an independent model, and what a decoder must
// refuse.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::terngrad_test {
namespace {

using namespace testing;

// A value becomes 0, or m with its sign; what is left is one rounded subtraction.
const testing::Expects kExpects{{
    .codec = "terngrad",
    .error_bound =
        [](const testing::EncodedValue& value) { return std::fmax(std::fabs(value.x()), value.scalar()); },
    .conservation_bound =
        [](const testing::EncodedValue& value) { return (std::fabs(value.x()) + value.scalar()) * 0x1p-24; },
    .draws = true,
    .skips_zeros = true,
    .refused = {"clip=on", "clip=0.99", "clip=100", "clip=0", "clip=nan", "clip="},
}};

// google-research/federated@a5af8c4433c9, compressed_communication/aggregators/comparison_methods/
// terngrad_test.py, lines 78 to 90: [-1, 0, 1] is kept.
TEST(Terngrad, TheLargestMagnitudeAndZerosAreKept) {
  const Floats published = {-1, 0, 1};
  for (std::uint64_t stream = 0; stream < 100; ++stream) {
    for (const std::string spec : {"terngrad", "terngrad:clip=off"}) {
      EXPECT_EQ(round_trip(spec, published, stream), published);
    }
  }
}

// The paper's bytes of base 3^5 for digits of +1, -1 and 0 in a row of three: 2, 0 and 1, and two pads of 1.
TEST(Terngrad, FiveDigitsAByte) {
  EXPECT_EQ(testing::to_ints(coded("terngrad", {7, -7, 0}).payload), Ints{81 * 2 + 0 + 9 + 3 + 1});
  EXPECT_EQ(coded("terngrad", {7, -7, 0}).scalar, bits_of(7));
  const Floats ten = {0, 0, 0, 0, 0, 1, -1, 0, 0, 0};  // two bytes: element j of each fifth
  EXPECT_EQ(testing::to_ints(coded("terngrad", ten).payload), (Ints{118, 130}));
}

TEST(Terngrad, ARowHas320Elements) {
  Floats values(322, 0.0F);
  values[1] = values[319] = 1;
  values[321] = -1;
  const Encoded part = coded("terngrad", values);
  Ints wanted(65, 121);
  wanted[1] = 121 + 81;
  wanted[63] = 121 + 1;
  wanted[64] = 81 + 0 + 9 + 3 + 1;
  EXPECT_EQ(testing::to_ints(part.payload), wanted);
}

TEST(Terngrad, ZerosAlone) {
  const Encoded part = coded("terngrad", {0, -0.0F, 0});
  EXPECT_EQ(part.scalar, 0U);
  EXPECT_EQ(testing::to_ints(part.payload), Ints{121});
}

TEST(Terngrad, LargestAndSmallestValues) {
  EXPECT_EQ(coded("terngrad", {kMax, -kMax}).scalar, bits_of(kMax));
  EXPECT_EQ(round_trip("terngrad", {kMax, -kMax}, 1), (Floats{kMax, -kMax}));
  EXPECT_EQ(round_trip("terngrad", {kTiniest, -kTiniest}, 1), (Floats{kTiniest, -kTiniest}));
  // The clipping point of one tiniest value among 40 zeros is below half of it, and rounded to 0.
  Floats tiny(41, 0.0F);
  tiny[3] = kTiniest;
  EXPECT_EQ(coded("terngrad", tiny).scalar, 0U);
  EXPECT_EQ(round_trip("terngrad", tiny, 1), Floats(41, 0.0F));
}

// spec.md, step 3, once more: the lanes one after another.
float model_m(const Floats& values, double clip) {
  double total = 0;
  double largest = 0;
  for (std::size_t block = 0; block < values.size(); block += 65536) {
    std::vector<double> lanes(16, 0.0);
    for (std::size_t lane = 0; lane < 16; ++lane) {
      for (std::size_t i = lane; i < 65536 && block + i < values.size(); i += 16) {
        lanes[lane] += std::pow(static_cast<double>(values[block + i]), 2);
      }
    }
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
    }
    total += lanes[0];
  }
  for (const float x : values) largest = std::fmax(largest, std::fabs(static_cast<double>(x)));
  const double limit = clip * std::sqrt(total / static_cast<double>(values.size()));
  return static_cast<float>(std::fmin(limit, largest));
}

float model_value(float x, float m, std::uint64_t i) {
  const std::uint64_t number = CounterRng(3).at(i / 2);
  const double u = (static_cast<double>(i % 2 == 0 ? number & 0xFFFFFFFF : number >> 32) + 0.5) / 0x1p32;
  if (u * static_cast<double>(m) >= std::fmin(std::fabs(static_cast<double>(x)), m)) return 0;
  return std::copysign(m, x);
}

TEST(Terngrad, ValuesAndResidualsAreTheModels) {
  for (const std::uint64_t count : {1U, 7U, 320U, 321U, 40961U, 200003U}) {
    Floats values = testing::normal_values(count, count);
    for (std::size_t i = 0; i < count; ++i) {  // so far apart that sums depend on their order
      values[i] = std::ldexp(values[i], static_cast<int>(i % 57) - 28);
    }
    for (const double clip : {2.5, 1.0, 1e9}) {
      Floats residual = testing::normal_values(count, count + 1);
      Floats x(count);
      for (std::size_t i = 0; i < count; ++i) x[i] = values[i] + residual[i];
      const auto codec = codec_of(clip > 100  ? "terngrad:clip=off"
                                  : clip == 1 ? "terngrad:clip=1"
                                              : "terngrad");
      const Encoded part = *testing::encode(*codec, values, residual);
      const float m = model_m(x, clip);
      ASSERT_EQ(part.scalar, bits_of(m)) << count << " " << clip;
      const Floats back = *testing::decode(*codec, part.view(), count);
      for (std::size_t i = 0; i < count; ++i) {
        const float wanted = model_value(x[i], m, i);
        ASSERT_EQ(back[i], wanted) << i << " of " << count;
        ASSERT_EQ(residual[i], x[i] - wanted) << i;
      }
    }
  }
}

ErrorCode verdict(const Ints& bytes, std::uint32_t m, std::uint64_t count) {
  return testing::verdict_of("terngrad", one_chunk(bytes, m), count);
}

TEST(TerngradRefusals, DigitsAndLengths) {
  const std::uint32_t one = bits_of(1);
  EXPECT_EQ(verdict({242}, one, 5), kAccepted);
  EXPECT_EQ(verdict({243}, one, 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({175}, one, 3), kAccepted);
  EXPECT_EQ(verdict({174}, one, 3), ErrorCode::kCorrupt);  // the last pad is 0
  EXPECT_EQ(verdict({121}, 0, 5), kAccepted);
  EXPECT_EQ(verdict({122}, 0, 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({121}, one, 6), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({121, 121}, one, 5), ErrorCode::kCorrupt);
}

TEST(TerngradRefusals, DigitsOfALaterChunk) {
  Encoded part = coded("terngrad", Floats(40961, 1.0F));
  part.payload[8192] = std::byte{243};
  EXPECT_EQ(testing::verdict_of("terngrad", part, 40961), ErrorCode::kCorrupt);
}

TEST(TerngradRefusals, Scales) {
  for (const std::uint32_t m : {0U, 1U, 0x7F7FFFFFU}) EXPECT_EQ(verdict({121}, m, 5), kAccepted) << m;
  for (const std::uint32_t m : {0x7F800000U, 0x7FC00000U, 0x80000000U, 0xBF800000U}) {
    EXPECT_EQ(verdict({121}, m, 5), ErrorCode::kCorrupt) << m;
  }
}

}  // namespace
}  // namespace deltawire::terngrad_test
