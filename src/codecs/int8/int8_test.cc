// int8: its bytes, ties, limits, an independent model, and what a decoder must refuse.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/dispatch.h"
#include "codecs/int8/int8_ops.h"
#include "codecs/target_testing.h"

namespace deltawire::int8_test {
namespace {

using namespace testing;

// Half a step, the scalar, and the rounding of 127 steps to float32.
const testing::Expects kExpects{{
    .codec = "int8",
    .error_bound = [](const testing::EncodedValue& value) { return value.scalar() * (0.5 + 0x1p-17); },
}};

Encoded coded(const std::vector<float>& values) {
  return *testing::encode(*codec_of("int8"), values);
}

TEST(Int8, BytesAreTwosComplementAndTiesGoToEven) {
  const Encoded part = coded({127, -127, 0.5F, 1.5F, -2.5F, -3.5F, 0, -0.0F, 1});
  EXPECT_EQ(part.scalar, bits_of(1));
  EXPECT_EQ(testing::to_ints(part.payload), (Ints{127, 129, 0, 2, 254, 252, 0, 0, 1}));
}

TEST(Int8, NextToATie) {
  const float above = std::nextafter(2.5F, 3.0F);
  const float below = std::nextafter(3.5F, 3.0F);
  EXPECT_EQ(testing::to_ints(coded({127, above, below, -above, -below}).payload),
            (Ints{127, 3, 3, 253, 253}));
  // 126.5 steps of 1 + 2^-23 and a little: a quotient in float32 would be the tie, and go to 126.
  const float step = std::nextafter(1.0F, 2.0F);
  const float x = std::nextafter(126.5F, 127.0F) + 0x1p-17F;
  ASSERT_EQ(x / step, 126.5F);
  ASSERT_GT(static_cast<double>(x), 126.5 * static_cast<double>(step));
  std::byte code{};
  int8::kernels_for(TargetId::kReference).encode({&x, nullptr, nullptr, 1}, step, &code);
  EXPECT_EQ(code, std::byte{127});
}

// Steps of every kind: powers of two, full mantissas, subnormal, the largest.
std::vector<float> hard_steps() {
  std::vector<float> steps = {1,
                              0.125F,
                              0x1p-126F,
                              0x1.fffffep-127F,
                              0x1.fffffep-126F,
                              kTiniest,
                              3 * kTiniest,
                              1e-40F,
                              0x1.000002p-126F,
                              0x1.fffffep3F,
                              0.1F,
                              0x1.000002p-9F,
                              1 / 3.0F,
                              std::bit_cast<float>(int8::kLargestStep)};
  CounterRng random(11);
  for (int i = 0; i < 60; ++i) {
    steps.push_back(std::ldexp(1 + static_cast<float>(random.next_uniform()),
                               static_cast<int>(random.next() % 240) - 125));
  }
  return steps;
}

// The floats next to every point between two codes of `step`, each among values that may lie anywhere.
std::vector<float> hard_values(float step) {
  CounterRng random(std::bit_cast<std::uint32_t>(step));
  std::vector<float> values;
  for (int code = -127; code < 127; ++code) {
    float x = static_cast<float>((code + 0.5) * static_cast<double>(step));
    x = std::nextafter(std::nextafter(x, -kMax), -kMax);
    for (int i = 0; i < 5; ++i, x = std::nextafter(x, kMax)) {
      for (std::uint64_t others = random.next() % 80; others > 0; --others) {
        const double whole = std::floor(random.next_uniform() * 253) - 126;
        values.push_back(
            static_cast<float>((whole + 0.4 * random.next_uniform()) * static_cast<double>(step)));
      }
      values.push_back(x);
    }
  }
  values.insert(values.end(), {-0.0F, 127 * step, -127 * step, -0.0F});
  return values;
}

// Whatever a target does instead of dividing, its codes are those of exact quotients.
TEST(Int8, EveryTargetFindsTheNearestCodeNextToTies) {
  for (const float step : hard_steps()) {
    const std::vector<float> values = hard_values(step);
    std::vector<std::byte> wanted(values.size());
    std::vector<float> wanted_left(values.size());
    int8::kernels_for(TargetId::kReference)
        .encode({values.data(), nullptr, wanted_left.data(), values.size()}, step, wanted.data());
    for (const TargetId target : testing::runnable_targets()) {
      const int8::Kernels& kernels = int8::kernels_for(target);
      std::vector<std::byte> codes(values.size());
      std::vector<float> left(values.size());
      kernels.encode({values.data(), nullptr, left.data(), values.size()}, step, codes.data());
      ASSERT_EQ(codes, wanted) << step << " " << testing::target_info(target).name;
      ASSERT_TRUE(testing::same_bits(left, wanted_left)) << step << " " << testing::target_info(target).name;
    }
  }
}

TEST(Int8, StepIsTheSmallestThatReachesTheLargest) {
  for (const float largest : {1.0F, 0.3F, 0.1F, 3.0e38F, 1e-38F, 190 * kTiniest, kTiniest, 127 * kTiniest}) {
    const float step = int8::step_for(largest);
    EXPECT_GE(static_cast<double>(step) * 127, static_cast<double>(largest)) << largest;
    EXPECT_LT(static_cast<double>(std::nextafter(step, 0.0F)) * 127, static_cast<double>(largest)) << largest;
  }
  EXPECT_EQ(bits_of(int8::step_for(0)), 0U);
  EXPECT_EQ(bits_of(int8::step_for(kMax)), int8::kLargestStep);
}

TEST(Int8, LargestAndSmallestValues) {
  const auto codec = codec_of("int8");
  const Encoded large = coded({kMax, -kMax});
  EXPECT_EQ(testing::to_ints(large.payload), (Ints{127, 129}));
  const auto back = *testing::decode(*codec, large.view(), 2);
  EXPECT_TRUE(std::isfinite(back[0]));
  EXPECT_EQ(back[0], -back[1]);
  EXPECT_FALSE(std::isfinite(127 * std::nextafter(std::bit_cast<float>(int8::kLargestStep), kMax)));
  const std::vector<float> tiny = {kTiniest, -3 * kTiniest, 0};
  EXPECT_TRUE(testing::same_bits(*testing::decode(*codec, coded(tiny).view(), 3), tiny));
}

// From the definition, in exact arithmetic: the code whose multiple of the step is nearest.
int model_code(double x, double step) {
  int best = 0;
  for (int code = -127; code <= 127; ++code) {
    const double distance = std::fabs(x - code * step);
    const double shortest = std::fabs(x - best * step);
    if (distance < shortest || (distance == shortest && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(Int8, CodesAndResidualsAreTheModels) {
  std::vector<float> values = testing::normal_values(3000, 3);
  for (std::size_t i = 0; i < 40; ++i) values[i] = static_cast<float>(i) * 0.125F;
  values[40] = 15.875F;  // a step of 1/8, so that the first 40 are on it
  std::vector<float> residual(values.size(), 0.0625F);
  residual[40] = 0;
  std::vector<float> before = residual;
  const auto part = *testing::encode(*codec_of("int8"), values, residual);
  ASSERT_EQ(part.scalar, bits_of(0.125F));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = values[i] + before[i];
    const int code = model_code(x, 0.125);
    ASSERT_EQ(static_cast<std::int8_t>(part.payload[i]), code) << i;
    ASSERT_EQ(residual[i], x - static_cast<float>(code) * 0.125F) << i;
  }
}

ErrorCode verdict(const Encoded& part, std::uint64_t count) {
  return testing::verdict_of("int8", part, count);
}

TEST(Int8Refusals, Codes) {
  EXPECT_EQ(verdict(one_chunk({127, 129}, bits_of(1)), 2), kAccepted);
  EXPECT_EQ(verdict(one_chunk({127, 128}, bits_of(1)), 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(one_chunk({0, 0}, 0), 2), kAccepted);
  EXPECT_EQ(verdict(one_chunk({0, 1}, 0), 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(one_chunk({0}, bits_of(1)), 2), ErrorCode::kTruncated);
  EXPECT_EQ(verdict(one_chunk({0, 0, 0}, bits_of(1)), 2), ErrorCode::kCorrupt);
}

// Where it stands in a vector, before or behind the last whole one; and in an array that is streamed.
TEST(Int8Refusals, EveryTargetFindsTheFirstBadCode) {
  for (const TargetId target : testing::runnable_targets()) {
    const auto codec = *make_codec("int8", target);
    const auto expect_found = [&](const Encoded& part, std::size_t place, const std::string& what) {
      std::vector<float> slot(part.payload.size() + 1);
      for (const Into into : {Into::kOverwrite, Into::kAccumulate}) {
        const auto status =
            codec->decode(part.view(), {slot.data() + 1, part.payload.size(), DType::kF32}, into, 1);
        ASSERT_FALSE(status) << place;
        EXPECT_EQ(status.error().message, "int8: the code of element " + std::to_string(place) + what);
      }
    };
    for (std::size_t place = 0; place < 100; ++place) {
      Encoded part = one_chunk(Ints(100, 0), bits_of(1));
      part.payload[place] = int8::kUnusedCode;
      part.payload[99] = int8::kUnusedCode;
      expect_found(part, place, " is -128");
      part.scalar = 0;
      part.payload[place] = std::byte{0x7F};
      expect_found(part, place, " isn't 0 although the step is 0");
    }
    constexpr std::size_t kLong = (std::size_t{1} << 22) + 50;
    for (const std::size_t place : {std::size_t{0}, std::size_t{777}, kLong - 1}) {
      Encoded part{std::vector<std::byte>(kLong), {}, bits_of(1)};
      for (std::size_t end = 65536; end < kLong; end += 65536)
        part.chunk_ends.push_back(static_cast<std::uint32_t>(end));
      part.chunk_ends.push_back(kLong);
      part.payload[place] = int8::kUnusedCode;
      expect_found(part, place, " is -128");
    }
  }
}

TEST(Int8Refusals, Step) {
  for (const std::uint32_t bits : {1U, int8::kLargestStep}) {
    EXPECT_EQ(verdict(one_chunk({1}, bits), 1), kAccepted) << bits;
  }
  for (const std::uint32_t bits :
       {int8::kLargestStep + 1, 0x7F800000U, 0x7FC00000U, 0x80000000U, 0xBF800000U}) {
    EXPECT_EQ(verdict(one_chunk({1}, bits), 1), ErrorCode::kCorrupt) << bits;
  }
}

}  // namespace
}  // namespace deltawire::int8_test
