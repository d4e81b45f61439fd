// fp4: its bytes, ties, scales and limits, an independent model, and what a decoder must refuse.
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::fp4_test {
namespace {

using namespace testing;

constexpr std::size_t kChunk = 65536;

// What spec.md says of each format.
struct Format {
  const char* spec;
  double numbers[8];  // of the codes without sign
  double reach;       // the largest magnitude for which the scale is 1
  double relative;    // the largest relative error between two normal numbers
  int largest_scale;
};

constexpr Format kE2M1 = {"fp4", {0, 0.5, 1, 1.5, 2, 3, 4, 6}, 7, 1.0 / 5, 252};
constexpr Format kE3M0 = {"fp4:format=e3m0", {0, 0.25, 0.5, 1, 2, 4, 8, 16}, 24, 1.0 / 3, 250};
constexpr const Format* kBoth[] = {&kE2M1, &kE3M0};

const Format& format_of(const Codec& codec) {
  return codec.spec().find("e3m0") == std::string::npos ? kE2M1 : kE3M0;
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
  const int both = std::to_integer<int>(part.payload[blocks + i / 2]);
  return i % 2 == 0 ? both & 15 : both >> 4;
}

const testing::Expects kExpects{{
    .codec = "fp4",
    .error_bound =
        [](const testing::EncodedValue& value) {
          const Format& format = format_of(value.codec);
          return std::fabs(value.x()) * format.relative +
                 format.numbers[1] / 2 * scale_of(value.codec, value.part, value.i);
        },
    .tiny_signs = {0, 0, 0, 0},  // below half the smallest number of the smallest scale
    .limits = {"fp4:format=e3m0,block=1024"},
}};

TEST(Fp4, ScalesComeFirstThenCodesLowerHalvesFirst) {
  EXPECT_EQ(bytes_of("fp4", {6, -6, 1, -0.0F, 1.5F}), (Ints{127, 0xF7, 0x82, 0x03}));
  EXPECT_EQ(bytes_of("fp4", {0.5F, 2, 3, 4}), (Ints{127, 0x41, 0x65}));
  EXPECT_EQ(bytes_of("fp4:format=e3m0", {16, -8, 4, 2}), (Ints{127, 0xE7, 0x45}));
  EXPECT_EQ(bytes_of("fp4:format=e3m0", {16, 1, -0.5F, 0.25F, 0}), (Ints{127, 0x37, 0x1A, 0}));
}

TEST(Fp4, TiesGoToEven) {
  EXPECT_EQ(bytes_of("fp4", {6, 5, 3.5F, 2.5F, 1.75F, -1.25F, 0.75F, 0.25F}),
            (Ints{127, 0x67, 0x46, 0xA4, 0x02}));
  EXPECT_EQ(bytes_of("fp4:format=e3m0", {16, 12, 6, -3, 1.5F, 0.75F, 0.375F, 0.125F}),
            (Ints{127, 0x67, 0xC6, 0x24, 0x02}));
}

TEST(Fp4, JustBesideATieIsTheNearer) {
  const auto above = [](float tie) { return std::nextafter(tie, 100.0F); };
  const auto below = [](float tie) { return std::nextafter(tie, 0.0F); };
  EXPECT_EQ(bytes_of("fp4", {6, above(5), below(3.5F), above(0.25F)}), (Ints{127, 0x77, 0x15}));
  EXPECT_EQ(bytes_of("fp4:format=e3m0", {16, above(12), below(6), above(0.125F)}), (Ints{127, 0x77, 0x15}));
}

// Up to reach the largest element is coded as the largest number; beyond it the scale doubles.
TEST(Fp4, TheScaleFollowsTheLargestElement) {
  for (const Format* format : kBoth) {
    const auto scale = [&](float largest) { return bytes_of(format->spec, {0, largest})[0]; };
    const auto reach = static_cast<float>(format->reach);
    for (const int power : {-100, 0, 100}) {
      const float most = std::ldexp(reach, power);
      EXPECT_EQ(bytes_of(format->spec, {-most}), (Ints{127 + power, 0xF})) << format->spec;
      EXPECT_EQ(scale(std::nextafter(most, 0.0F)), 127 + power) << format->spec;
      EXPECT_EQ(scale(std::nextafter(most, kMax)), 128 + power) << format->spec;
      EXPECT_EQ(scale(std::nextafter(most / 2, kMax)), 127 + power) << format->spec;
    }
    EXPECT_EQ(scale(0x1p-126F), 0) << format->spec;
    EXPECT_EQ(scale(kTiniest), 0) << format->spec;
    EXPECT_EQ(bytes_of(format->spec, {0, -0.0F}), (Ints{0, 0x80})) << format->spec;
  }
}

// No other power of two has a smaller worst error over what may be in a block.
TEST(Fp4, NoScaleHasASmallerWorstError) {
  for (const Format* format : kBoth) {
    const auto error_at = [&](double x, int scale) {
      double least = kMax;
      for (const double number : format->numbers) {
        least = std::min(least, std::fabs(x - std::ldexp(number, scale)));
      }
      return least;
    };
    for (int sixteenths = 16; sixteenths < 32; ++sixteenths) {
      const double largest = sixteenths / 16.0;
      const auto worst_error = [&](int scale) {
        double worst = 0;
        for (double x = 0; x <= largest; x += 0x1p-10) worst = std::max(worst, error_at(x, scale));
        return worst;
      };
      const int chosen = bytes_of(format->spec, {static_cast<float>(largest)})[0] - 127;
      for (int scale = -6; scale < 3; ++scale) {
        EXPECT_LE(worst_error(chosen), worst_error(scale)) << format->spec << " " << largest << " " << scale;
      }
    }
  }
}

TEST(Fp4, TheLargestFloatSaturatesAndTheRestWaits) {
  for (const Format* format : kBoth) {
    Floats residual = {0, 0};
    const auto codec = codec_of(format->spec);
    const Encoded part = *testing::encode(*codec, Floats{kMax, -kMax}, residual);
    const auto most = static_cast<float>(std::ldexp(format->numbers[7], format->largest_scale - 127));
    EXPECT_EQ(*testing::decode(*codec, part.view(), 2), (Floats{most, -most})) << format->spec;
    EXPECT_EQ(residual, (Floats{kMax - most, most - kMax})) << format->spec;
  }
}

TEST(Fp4, EachBlockHasItsScale) {
  Floats values(32 * 2 + 1, 0.0F);
  values[31] = 6;
  values[32] = -6 * 1024;
  values[64] = 0x1p-20F;
  const auto codec = codec_of("fp4");
  const Encoded part = *testing::encode(*codec, values);
  EXPECT_EQ(testing::to_ints(std::span(part.payload).first(3)), (Ints{127, 137, 105}));
  EXPECT_TRUE(testing::same_bits(*testing::decode(*codec, part.view(), values.size()), values));
}

TEST(Fp4, EveryCodeIsItsNumber) {
  for (const Format* format : kBoth) {
    const auto codec = codec_of(format->spec);
    for (int code = 0; code < 8; ++code) {
      for (const int scale : {0, 1, 127, format->largest_scale}) {
        const auto back = testing::decode(*codec, one_chunk({scale, (code | 8) << 4 | code}, 0).view(), 2);
        ASSERT_TRUE(back) << code << " " << scale;
        const double value = std::ldexp(format->numbers[code], scale - 127);
        ASSERT_EQ(static_cast<double>(back->at(0)), value) << code << " " << scale;
        ASSERT_EQ(static_cast<double>(back->at(1)), -value) << code << " " << scale;
        ASSERT_TRUE(std::signbit(back->at(1)));
      }
    }
  }
}

// From the definition, in exact arithmetic: the code whose number is nearest, of two the even one.
int model_code(double x, const Format& format) {
  const auto distance = [&](int code) { return std::fabs(std::fabs(x) - format.numbers[code]); };
  int best = 0;
  for (int code = 1; code < 8; ++code) {
    if (distance(code) < distance(best) || (distance(code) == distance(best) && code % 2 == 0)) best = code;
  }
  return std::signbit(x) ? best | 8 : best;
}

TEST(Fp4, CodesAndResidualsAreTheModels) {
  for (const std::string block : {"32", "1024"}) {
    for (const Format* format : kBoth) {
      const auto codec = codec_of(format == &kE2M1 ? "fp4:block=" + block : "fp4:format=e3m0,block=" + block);
      const CounterRng random(4);
      Floats values = testing::normal_values(32 * 90 + 7, 9);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const int spread = static_cast<int>(random.uniform_at(i) * 9);
        values[i] = std::ldexp(values[i], static_cast<int>(i / 32) * 2 - 120 - spread);
      }
      Floats residual(values.size());
      for (std::size_t i = 0; i < values.size(); i += 3) residual[i] = values[i] * 0.25F;
      const Floats before = residual;
      const Encoded part = *testing::encode(*codec, values, residual);
      const Floats back = *testing::decode(*codec, part.view(), values.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float x = values[i] + before[i];
        ASSERT_EQ(code_at(*codec, part, values.size(), i),
                  model_code(static_cast<double>(x) / scale_of(*codec, part, i), *format))
            << codec->spec() << " " << i << " " << x;
        ASSERT_EQ(static_cast<double>(residual[i]), static_cast<double>(x) - static_cast<double>(back[i]))
            << i;
      }
    }
  }
}

ErrorCode verdict(const std::string& spec, const Ints& bytes, std::uint64_t count) {
  return testing::verdict_of(spec, one_chunk(bytes, 0), count);
}

TEST(Fp4Refusals, ScalesAndPadding) {
  for (const Format* format : kBoth) {
    EXPECT_EQ(verdict(format->spec, {format->largest_scale, 0xF7}, 2), kAccepted);
    EXPECT_EQ(verdict(format->spec, {format->largest_scale + 1, 0}, 1), ErrorCode::kCorrupt);
    EXPECT_EQ(verdict(format->spec, {255, 0}, 1), ErrorCode::kCorrupt);
    EXPECT_EQ(verdict(format->spec, {127, 0x07}, 1), kAccepted);
    for (const int padding : {0x10, 0x80}) {
      EXPECT_EQ(verdict(format->spec, {127, padding}, 1), ErrorCode::kCorrupt) << padding;
    }
  }
  Ints second(2 + 17, 0);
  EXPECT_EQ(verdict("fp4", second, 33), kAccepted);
  second[1] = 253;
  EXPECT_EQ(verdict("fp4", second, 33), ErrorCode::kCorrupt);
}

TEST(Fp4Refusals, Lengths) {
  EXPECT_EQ(verdict("fp4", {127}, 1), ErrorCode::kTruncated);
  EXPECT_EQ(verdict("fp4", {127, 0, 0}, 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("fp4", Ints(18, 0), 33), ErrorCode::kTruncated);
}

TEST(Fp4Specs, WordsInTheirRange) {
  EXPECT_EQ(codec_of("fp4")->spec(), "fp4:format=e2m1,block=32");
  EXPECT_EQ(codec_of("fp4:block=1024,format=e3m0")->spec(), "fp4:format=e3m0,block=1024");
  for (const char* spec : {"fp4:format=e1m2", "fp4:block=16", "fp4:block=2048", "fp4:block=48"}) {
    EXPECT_FALSE(make_codec(spec)) << spec;
  }
}

}  // namespace
}  // namespace deltawire::fp4_test
