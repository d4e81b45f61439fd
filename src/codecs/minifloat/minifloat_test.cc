// fp4 and fp8: their bytes, ties, scales and limits, an independent model, and what a decoder must refuse.
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::minifloat_test {
namespace {

using namespace testing;

constexpr std::size_t kChunk = 65536;

// What spec.md says of each format.
struct Format {
  const char* spec;
  unsigned bits;
  int mantissa_bits;
  int bias;
  int largest_code;  // without sign
  double reach;      // the largest magnitude for which the scale is 1
  double relative;   // the largest relative error between two normal numbers
  int largest_scale;

  int sign() const { return 1 << (bits - 1); }

  // From the definition: what a code without sign stands for.
  double number(int code) const {
    const int exponent = code >> mantissa_bits;
    const int mantissa = code & ((1 << mantissa_bits) - 1);
    const int hidden = exponent > 0 ? 1 << mantissa_bits : 0;
    return std::ldexp(hidden + mantissa, (exponent > 0 ? exponent : 1) - bias - mantissa_bits);
  }
  float largest() const { return static_cast<float>(number(largest_code)); }

  // The bytes of a block of up to two codes.
  Ints block(int scale, int first, int second) const {
    return bits == 8 ? Ints{scale, first, second} : Ints{scale, second << 4 | first};
  }
};

constexpr Format kFormats[] = {{"fp4", 4, 1, 1, 7, 7, 1.0 / 5, 252},
                               {"fp4:format=e3m0", 4, 0, 3, 7, 24, 1.0 / 3, 250},
                               {"fp8", 8, 3, 7, 0x7E, 448, 1.0 / 16, 246},
                               {"fp8:format=e5m2", 8, 2, 15, 0x7B, 57344, 1.0 / 8, 239}};

const Format& format_of(const Codec& codec) {
  const std::string spec = codec.spec();
  const bool other = spec.find("e3m0") != std::string::npos || spec.find("e5m2") != std::string::npos;
  return kFormats[(spec.starts_with("fp8") ? 2 : 0) + (other ? 1 : 0)];
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

// The code of an element of a part of one chunk.
int code_at(const Codec& codec, const Encoded& part, std::size_t count, std::size_t i) {
  const std::size_t blocks = (count + block_of(codec) - 1) / block_of(codec);
  if (format_of(codec).bits == 8) return std::to_integer<int>(part.payload[blocks + i]);
  const int both = std::to_integer<int>(part.payload[blocks + i / 2]);
  return i % 2 == 0 ? both & 15 : both >> 4;
}

// Half a last place of normal numbers, and half the smallest number.
double error_bound(const EncodedValue& value) {
  const Format& format = format_of(value.codec);
  return std::fabs(value.x()) * format.relative +
         format.number(1) / 2 * scale_of(value.codec, value.part, value.i);
}

const Expects kExpectsFp4{{
    .codec = "fp4",
    .error_bound = error_bound,
    .tiny_signs = {0, 0, 0, 0},  // below half the smallest number of the smallest scale
    .limits = {"fp4:format=e3m0,block=1024"},
    .refused = {"format=e1m2", "format=e4m3", "block=16", "block=2048", "block=48"},
}};
const Expects kExpectsFp8{{
    .codec = "fp8",
    .error_bound = error_bound,
    .limits = {"fp8:format=e5m2,block=1024"},
    .refused = {"format=e3m4", "format=e2m1", "block=16", "block=2048", "block=48"},
}};

TEST(Minifloat, ScalesComeFirstThenCodesLowerHalvesFirst) {
  EXPECT_EQ(bytes_of("fp4", {6, -6, 1, -0.0F, 1.5F}), (Ints{127, 0xF7, 0x82, 0x03}));
  EXPECT_EQ(bytes_of("fp4", {0.5F, 2, 3, 4}), (Ints{127, 0x41, 0x65}));
  EXPECT_EQ(bytes_of("fp4:format=e3m0", {16, -8, 4, 2}), (Ints{127, 0xE7, 0x45}));
  EXPECT_EQ(bytes_of("fp4:format=e3m0", {16, 1, -0.5F, 0.25F, 0}), (Ints{127, 0x37, 0x1A, 0}));
  EXPECT_EQ(bytes_of("fp8", {448, -448, 1, -0.0F, 0}), (Ints{127, 0x7E, 0xFE, 0x38, 0x80, 0}));
  EXPECT_EQ(bytes_of("fp8:format=e5m2", {57344, -1}), (Ints{127, 0x7B, 0xBC}));
  EXPECT_EQ(bytes_of("fp8", {1, -1.75F}), (Ints{127 - 8, 0x78, 0xFE}));
}

TEST(Minifloat, TiesGoToEven) {
  EXPECT_EQ(bytes_of("fp4", {6, 5, 3.5F, 2.5F, 1.75F, -1.25F, 0.75F, 0.25F}),
            (Ints{127, 0x67, 0x46, 0xA4, 0x02}));
  EXPECT_EQ(bytes_of("fp4:format=e3m0", {16, 12, 6, -3, 1.5F, 0.75F, 0.375F, 0.125F}),
            (Ints{127, 0x67, 0xC6, 0x24, 0x02}));
  EXPECT_EQ(bytes_of("fp8", {448, 17, 19, 0x1p-10F, 0x3p-10F, 0x1.000002p-10F, 0x1.fp-7F}),
            (Ints{127, 0x7E, 0x58, 0x5A, 0, 2, 1, 8}));
  EXPECT_EQ(bytes_of("fp8:format=e5m2", {57344, 9, 11, 0x1p-17F, -0x3p-17F}),
            (Ints{127, 0x7B, 0x48, 0x4A, 0, 0x82}));
}

TEST(Minifloat, JustBesideATieIsTheNearer) {
  const auto above = [](float tie) { return std::nextafter(tie, 100.0F); };
  const auto below = [](float tie) { return std::nextafter(tie, 0.0F); };
  EXPECT_EQ(bytes_of("fp4", {6, above(5), below(3.5F), above(0.25F)}), (Ints{127, 0x77, 0x15}));
  EXPECT_EQ(bytes_of("fp4:format=e3m0", {16, above(12), below(6), above(0.125F)}), (Ints{127, 0x77, 0x15}));
}

// Up to reach the largest element is coded as the largest number; beyond it the scale doubles.
TEST(Minifloat, TheScaleFollowsTheLargestElement) {
  for (const Format& format : kFormats) {
    const auto scale = [&](float largest) { return bytes_of(format.spec, {0, largest})[0]; };
    const auto reach = static_cast<float>(format.reach);
    for (const int power : {-100, 0, 100}) {
      const float most = std::ldexp(reach, power);
      EXPECT_EQ(bytes_of(format.spec, {-most}), (Ints{127 + power, format.largest_code | format.sign()}))
          << format.spec;
      EXPECT_EQ(scale(std::nextafter(most, 0.0F)), 127 + power) << format.spec;
      EXPECT_EQ(scale(std::nextafter(most, kMax)), 128 + power) << format.spec;
      EXPECT_EQ(scale(std::nextafter(most / 2, kMax)), 127 + power) << format.spec;
    }
    EXPECT_EQ(scale(0x1p-126F), 0) << format.spec;
    EXPECT_EQ(scale(kTiniest), 0) << format.spec;
    EXPECT_EQ(bytes_of(format.spec, {0, -0.0F}), format.block(0, 0, format.sign())) << format.spec;
  }
}

TEST(Minifloat, TheLargestFloatSaturatesAndTheRestWaits) {
  for (const Format& format : kFormats) {
    Floats residual = {0, 0};
    const auto codec = codec_of(format.spec);
    const Encoded part = *testing::encode(*codec, Floats{kMax, -kMax}, residual);
    const float most = std::ldexp(format.largest(), format.largest_scale - 127);
    EXPECT_EQ(*testing::decode(*codec, part.view(), 2), (Floats{most, -most})) << format.spec;
    EXPECT_EQ(residual, (Floats{kMax - most, most - kMax})) << format.spec;
  }
}

TEST(Minifloat, EachBlockHasItsScale) {
  for (const Format* format : {&kFormats[0], &kFormats[2]}) {
    Floats values(32 * 2 + 1, 0.0F);
    values[31] = format->largest();
    values[32] = -format->largest() * 1024;
    values[64] = 0x1p-20F;
    const auto codec = codec_of(format->spec);
    const Encoded part = *testing::encode(*codec, values);
    EXPECT_EQ(to_ints(std::span(part.payload).first(3)), (Ints{127, 137, format->bits == 8 ? 99 : 105}));
    EXPECT_TRUE(same_bits(*testing::decode(*codec, part.view(), values.size()), values));
  }
}

TEST(Minifloat, EveryCodeIsItsNumber) {
  for (const Format& format : kFormats) {
    const auto codec = codec_of(format.spec);
    for (int code = 0; code <= format.largest_code; ++code) {
      for (const int scale : {0, 1, 127, format.largest_scale}) {
        const Encoded part = one_chunk(format.block(scale, code, code | format.sign()), 0);
        const auto back = testing::decode(*codec, part.view(), 2);
        ASSERT_TRUE(back) << code << " " << scale;
        const double value = std::ldexp(format.number(code), scale - 127);
        ASSERT_EQ(static_cast<double>(back->at(0)), value) << code << " " << scale;
        ASSERT_EQ(static_cast<double>(back->at(1)), -value) << code << " " << scale;
        ASSERT_TRUE(std::signbit(back->at(1)));
      }
    }
  }
}

// From the definition, in exact arithmetic: the code whose number is nearest, of two the even one.
int model_code(double x, const Format& format) {
  const auto distance = [&](int code) { return std::fabs(std::fabs(x) - format.number(code)); };
  int best = 0;
  for (int code = 1; code <= format.largest_code; ++code) {
    if (distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0)) best = code;
  }
  return std::signbit(x) ? best | format.sign() : best;
}

TEST(Minifloat, CodesAndResidualsAreTheModels) {
  for (const Format& format : kFormats) {
    for (const std::string block : {"32", "1024"}) {
      const std::string spec = format.spec;
      const auto codec =
          codec_of(spec + (spec.find(':') == std::string::npos ? ":" : ",") + "block=" + block);
      const CounterRng random(4);
      Floats values = normal_values(32 * 90 + 7, 9);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const int power = static_cast<int>(i / 32) * 2 - 120;
        const int spread = static_cast<int>(random.uniform_at(i) * (format.bits == 8 ? 30 : 9));
        values[i] = i % 5 == 0 ? std::ldexp(17 + static_cast<float>(i % 16), power - 5)
                               : std::ldexp(values[i], power - spread);
      }
      Floats residual(values.size());
      for (std::size_t i = 0; i < values.size(); i += 3) residual[i] = values[i] * 0.25F;
      const Floats before = residual;
      const Encoded part = *testing::encode(*codec, values, residual);
      const Floats back = *testing::decode(*codec, part.view(), values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float x = values[i] + before[i];
        ASSERT_EQ(code_at(*codec, part, values.size(), i),
                  model_code(static_cast<double>(x) / scale_of(*codec, part, i), format))
            << codec->spec() << " " << i << " " << x;
        ASSERT_EQ(static_cast<double>(residual[i]), static_cast<double>(x) - static_cast<double>(back[i]))
            << i;
      }
    }
  }
}

ErrorCode verdict(const std::string& spec, const Ints& bytes, std::uint64_t count) {
  return verdict_of(spec, one_chunk(bytes, 0), count);
}

TEST(MinifloatRefusals, Scales) {
  for (const Format& format : kFormats) {
    const int most = format.largest_code;
    EXPECT_EQ(verdict(format.spec, format.block(format.largest_scale, most, most | format.sign()), 2),
              kAccepted);
    EXPECT_EQ(verdict(format.spec, {format.largest_scale + 1, 0}, 1), ErrorCode::kCorrupt);
    EXPECT_EQ(verdict(format.spec, {255, 0}, 1), ErrorCode::kCorrupt);
    Ints second(2 + (format.bits == 8 ? 33 : 17), 0);
    EXPECT_EQ(verdict(format.spec, second, 33), kAccepted);
    second[1] = format.largest_scale + 1;
    EXPECT_EQ(verdict(format.spec, second, 33), ErrorCode::kCorrupt);
    second.pop_back();
    EXPECT_EQ(verdict(format.spec, second, 33), ErrorCode::kTruncated);
    EXPECT_EQ(verdict(format.spec, {127}, 1), ErrorCode::kTruncated);
    EXPECT_EQ(verdict(format.spec, {127, 0, 0}, 1), ErrorCode::kCorrupt);
  }
}

TEST(MinifloatRefusals, CodesAndPadding) {
  EXPECT_EQ(verdict("fp8", {127, 0x7F}, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("fp8", {127, 0, 0xFF}, 2), ErrorCode::kCorrupt);
  for (const int code : {0x7C, 0x7D, 0x7F, 0xFC, 0xFF}) {
    EXPECT_EQ(verdict("fp8:format=e5m2", {127, code}, 1), ErrorCode::kCorrupt) << code;
  }
  for (const char* spec : {"fp4", "fp4:format=e3m0"}) {
    EXPECT_EQ(verdict(spec, {127, 0x07}, 1), kAccepted);
    for (const int padding : {0x10, 0x80}) {
      EXPECT_EQ(verdict(spec, {127, padding}, 1), ErrorCode::kCorrupt) << padding;
    }
    EXPECT_EQ(verdict(spec, {127, 0, 0}, 2), ErrorCode::kCorrupt);
  }
}

}  // namespace
}  // namespace deltawire::minifloat_test
