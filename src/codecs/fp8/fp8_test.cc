// fp8: its bytes, ties, scales and limits, an independent model, and what a decoder must refuse.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::fp8_test {
namespace {

using namespace testing;

constexpr std::size_t kChunk = 65536;
constexpr const char* kBoth[] = {"fp8", "fp8:format=e5m2"};

bool is_e4m3(const std::string& spec) {
  return spec.find("e5m2") == std::string::npos;
}

std::size_t block_of(const Codec& codec) {
  const std::string spec = codec.spec();
  return std::stoul(spec.substr(spec.rfind('=') + 1));
}

// The power of two of an element's block.
double scale_of(const Codec& codec, const Encoded& part, std::uint64_t i) {
  const std::size_t begin = i < kChunk ? 0 : part.chunk_ends[i / kChunk - 1];
  const auto scale = part.payload[begin + i % kChunk / block_of(codec)];
  return std::ldexp(1.0, std::to_integer<int>(scale) - 127);
}

// Half a last place of normal numbers, and half the smallest number.
const testing::Expects kExpects{{
    .codec = "fp8",
    .error_bound =
        [](const testing::EncodedValue& value) {
          const bool e4m3 = is_e4m3(value.codec.spec());
          const double smallest = e4m3 ? 0x1p-9 : 0x1p-16;
          return std::fabs(value.x()) / (e4m3 ? 16 : 8) +
                 smallest / 2 * scale_of(value.codec, value.part, value.i);
        },
    .limits = {"fp8:format=e5m2,block=1024"},
}};

// From the definition: what a code without sign stands for.
double number_of(int code, bool e4m3) {
  const int mantissa_bits = e4m3 ? 3 : 2;
  const int bias = e4m3 ? 7 : 15;
  const int exponent = code >> mantissa_bits;
  const int mantissa = code & ((1 << mantissa_bits) - 1);
  const int hidden = exponent > 0 ? 1 << mantissa_bits : 0;
  return std::ldexp(hidden + mantissa, (exponent > 0 ? exponent : 1) - bias - mantissa_bits);
}

int largest_code(bool e4m3) {
  return e4m3 ? 0x7E : 0x7B;
}

TEST(Fp8, ScalesComeFirstThenCodes) {
  // 448 is e4m3's largest: a scale of 2^0, which is 127.
  EXPECT_EQ(bytes_of("fp8", {448, -448, 1, -0.0F, 0}), (Ints{127, 0x7E, 0xFE, 0x38, 0x80, 0}));
  EXPECT_EQ(bytes_of("fp8:format=e5m2", {57344, -1}), (Ints{127, 0x7B, 0xBC}));
  EXPECT_EQ(bytes_of("fp8", {1, -1.75F}), (Ints{127 - 8, 0x78, 0xFE}));
}

TEST(Fp8, TiesGoToEven) {
  EXPECT_EQ(bytes_of("fp8", {448, 17, 19, 0x1p-10F, 0x3p-10F, 0x1.000002p-10F, 0x1.fp-7F}),
            (Ints{127, 0x7E, 0x58, 0x5A, 0, 2, 1, 8}));
  EXPECT_EQ(bytes_of("fp8:format=e5m2", {57344, 9, 11, 0x1p-17F, -0x3p-17F}),
            (Ints{127, 0x7B, 0x48, 0x4A, 0, 0x82}));
}

TEST(Fp8, NothingSaturatesBelowTheLargestScale) {
  for (const char* spec : kBoth) {
    const int exponent = is_e4m3(spec) ? 8 : 15;
    const float above = std::nextafter(1.75F, 2.0F);
    EXPECT_EQ(bytes_of(spec, {1.75F})[0], 127 - exponent) << spec;
    EXPECT_EQ(bytes_of(spec, {above})[0], 128 - exponent) << spec;
    EXPECT_EQ(bytes_of(spec, {0x1p-100F})[0], 27 - exponent) << spec;
    EXPECT_EQ(bytes_of(spec, {0x1p-126F})[0], 0) << spec;
    EXPECT_EQ(bytes_of(spec, {0, -0.0F}), (Ints{0, 0, 0x80})) << spec;
    EXPECT_EQ(bytes_of(spec, {0x1.cp127F}), (Ints{254 - exponent, largest_code(is_e4m3(spec))})) << spec;
  }
}

TEST(Fp8, TheLargestFloatSaturatesAndTheRestWaits) {
  for (const char* spec : kBoth) {
    Floats residual = {0, 0};
    const auto codec = codec_of(spec);
    const Encoded part = *testing::encode(*codec, Floats{kMax, -kMax}, residual);
    EXPECT_EQ(*testing::decode(*codec, part.view(), 2), (Floats{0x1.cp127F, -0x1.cp127F})) << spec;
    EXPECT_EQ(residual, (Floats{kMax - 0x1.cp127F, 0x1.cp127F - kMax})) << spec;
  }
}

TEST(Fp8, EachBlockHasItsScale) {
  Floats values(32 * 2 + 1, 0.0F);
  values[31] = 448;
  values[32] = -448 * 1024;
  values[64] = 0x1p-20F;
  const auto codec = codec_of("fp8");
  const Encoded part = *testing::encode(*codec, values);
  EXPECT_EQ(testing::to_ints(std::span(part.payload).first(3)), (Ints{127, 137, 99}));
  EXPECT_TRUE(testing::same_bits(*testing::decode(*codec, part.view(), values.size()), values));
}

TEST(Fp8, EveryCodeIsItsNumber) {
  for (const char* spec : kBoth) {
    const auto codec = codec_of(spec);
    for (int code = 0; code <= largest_code(is_e4m3(spec)); ++code) {
      for (const int scale : {0, 1, 127, is_e4m3(spec) ? 246 : 239}) {
        const auto back = testing::decode(*codec, one_chunk({scale, code, code | 0x80}, 0).view(), 2);
        ASSERT_TRUE(back) << code << " " << scale;
        const double value = number_of(code, is_e4m3(spec)) * std::ldexp(1.0, scale - 127);
        ASSERT_EQ(static_cast<double>(back->at(0)), value) << code << " " << scale;
        ASSERT_EQ(static_cast<double>(back->at(1)), -value) << code << " " << scale;
      }
    }
  }
}

// From the definition, in exact arithmetic: the code whose number is nearest, of two the even one.
int model_code(double x, bool e4m3) {
  int best = 0;
  for (int code = 1; code <= largest_code(e4m3); ++code) {
    const double distance = std::fabs(std::fabs(x) - number_of(code, e4m3));
    const double shortest = std::fabs(std::fabs(x) - number_of(best, e4m3));
    if (distance < shortest || (distance == shortest && code % 2 == 0)) best = code;
  }
  return std::signbit(x) ? best | 0x80 : best;
}

TEST(Fp8, CodesAndResidualsAreTheModels) {
  for (const char* spec : kBoth) {
    const auto codec = codec_of(spec);
    CounterRng random(8);
    Floats values = testing::normal_values(32 * 30, 9);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const int spread = static_cast<int>(random.next() % 30);
      values[i] = std::ldexp(values[i], static_cast<int>(i / 32) * 8 - 120 - spread);
      if (i % 5 == 0)
        values[i] = std::ldexp(17 + static_cast<float>(i % 16), static_cast<int>(i / 32) * 8 - 125);
    }
    Floats residual(values.size());
    for (std::size_t i = 0; i < values.size(); i += 3) residual[i] = values[i] * 0.25F;
    const Floats before = residual;
    const Encoded part = *testing::encode(*codec, values, residual);
    const Floats back = *testing::decode(*codec, part.view(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const float x = values[i] + before[i];
      const int code = std::to_integer<int>(part.payload[30 + i]);
      ASSERT_EQ(code, model_code(x / scale_of(*codec, part, i), is_e4m3(spec))) << i << " " << x;
      ASSERT_EQ(static_cast<double>(residual[i]), static_cast<double>(x) - static_cast<double>(back[i])) << i;
    }
  }
}

ErrorCode verdict(const std::string& spec, const Ints& bytes, std::uint64_t count) {
  return testing::verdict_of(spec, one_chunk(bytes, 0), count);
}

TEST(Fp8Refusals, CodesAndScales) {
  EXPECT_EQ(verdict("fp8", {246, 0x7E, 0xFE}, 2), kAccepted);
  EXPECT_EQ(verdict("fp8", {247, 0}, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("fp8", {255, 0}, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("fp8", {127, 0x7F}, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("fp8", {127, 0, 0xFF}, 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("fp8:format=e5m2", {239, 0x7B, 0xFB}, 2), kAccepted);
  EXPECT_EQ(verdict("fp8:format=e5m2", {240, 0}, 1), ErrorCode::kCorrupt);
  for (const int code : {0x7C, 0x7D, 0x7F, 0xFC, 0xFF}) {
    EXPECT_EQ(verdict("fp8:format=e5m2", {127, code}, 1), ErrorCode::kCorrupt) << code;
  }
  Ints second(2 + 33, 0);
  EXPECT_EQ(verdict("fp8", second, 33), kAccepted);
  second[1] = 247;
  EXPECT_EQ(verdict("fp8", second, 33), ErrorCode::kCorrupt);
}

TEST(Fp8Refusals, Lengths) {
  EXPECT_EQ(verdict("fp8", {127}, 1), ErrorCode::kTruncated);
  EXPECT_EQ(verdict("fp8", {127, 0, 0}, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("fp8", Ints(34, 0), 33), ErrorCode::kTruncated);
}

TEST(Fp8Specs, WordsInTheirRange) {
  EXPECT_EQ(codec_of("fp8")->spec(), "fp8:format=e4m3,block=32");
  EXPECT_EQ(codec_of("fp8:block=1024,format=e5m2")->spec(), "fp8:format=e5m2,block=1024");
  for (const char* spec : {"fp8:format=e3m4", "fp8:block=16", "fp8:block=2048", "fp8:block=48"}) {
    EXPECT_FALSE(make_codec(spec)) << spec;
  }
}

}  // namespace
}  // namespace deltawire::fp8_test
