// What fastsgd does to values: thresholds, bounds, the share that is kept, and what it refuses.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/property_testing.h"
#include "codecs/codec_testing.h"
#include "codecs/fastsgd/fastsgd_testing.h"

namespace deltawire::fastsgd_test {
namespace {

using testing::bits_of;
using testing::codec_of;
using testing::FastsgdModel;
using testing::same_bits;

// A value is dropped, or coded as the next of sum / b^L below it, so that it is off by less than 1 - 1/b of
// itself. Which ones are dropped is tested below.
const testing::Expects kExpects{{
    .codec = "fastsgd",
    .error_bound = [](const testing::EncodedValue& value) { return std::fabs(value.x()); },
    .limits = {"fastsgd:b=1.02,tau=2047,l=1"},
}};

constexpr float kLargest = std::numeric_limits<float>::max();

std::vector<float> there_and_back(std::string_view spec, const std::vector<float>& values) {
  const auto codec = codec_of(spec);
  const auto part = testing::encode(*codec, values);
  if (!part) throw std::runtime_error(part.error().message);
  return *testing::decode(*codec, part->view(), values.size());
}

Error error_of(std::string_view spec, const std::vector<float>& values) {
  const auto part = testing::encode(*codec_of(spec), values);
  return part ? Error{} : part.error();
}

std::size_t kept(const std::vector<float>& values) {
  return values.size() - static_cast<std::size_t>(std::count(values.begin(), values.end(), 0.0F));
}

// A value on a threshold has that code, one ulp below it the next: for every code of the paper's setting.
TEST(Fastsgd, ThresholdsAreExact) {
  const FastsgdModel model{.b = 1.1F, .tau = 128};
  constexpr float kSum = 0x1p20F;
  for (int code = 2; code <= 128; ++code) {
    const float edge = model.value(kSum, code);
    for (const float x : {edge, std::nextafter(edge, 0.0F), std::nextafter(edge, kSum)}) {
      const std::vector<float> values = {kSum - x, x};
      ASSERT_EQ(testing::fastsgd_sum(values), kSum) << code;
      const float expected = x >= edge ? edge : code < 128 ? model.value(kSum, code + 1) : 0.0F;
      ASSERT_EQ(there_and_back("fastsgd:tau=128", values)[1], expected) << code;
    }
  }
}

TEST(Fastsgd, TauIsInclusive) {
  const std::vector<float> x = {8, 4, -2, 1, 1};  // L = 1, 2, 3, 4, 4
  EXPECT_EQ(there_and_back("fastsgd:b=2,tau=4", x), x);
  EXPECT_EQ(there_and_back("fastsgd:b=2,tau=3", x), (std::vector<float>{8, 4, -2, 0, 0}));
  EXPECT_EQ(there_and_back("fastsgd:b=2,tau=1", x), (std::vector<float>{8, 0, 0, 0, 0}));
}

PROPERTY(Fastsgd, NeverOverestimatesAndIsOffByLessThanB) {
  const auto numbers = testing::drawn_numbers();
  constexpr float kBases[] = {1.02F, 1.1F, 1.7F, 2};
  const float b = testing::drawn_of(kBases);
  std::vector<float> values;
  for (const std::int32_t number : numbers) {
    const auto word = static_cast<std::uint32_t>(number) * 2654435761U;
    values.push_back(std::bit_cast<float>(word % 0xFE000000 % 0x7E000000 | (word & 0x80000000)));
  }
  const auto codec = codec_of("fastsgd:tau=2047,b=" + std::to_string(b));
  const auto part = testing::encode(*codec, values);
  PRESUMES(part.has_value());  // the sum may overflow
  const auto back = *testing::decode(*codec, part->view(), values.size());
  const float sum = std::bit_cast<float>(part->scalar);
  const float cut = values.empty() ? 0.0F : FastsgdModel{.b = b, .tau = 2047}.value(sum, 2047);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = std::fabs(values[i]);
    const double decoded = std::fabs(back[i]);
    HOLDS(decoded <= x);
    if (decoded == 0) {
      HOLDS(x < cut || x == 0);
    } else {
      HOLDS(std::signbit(back[i]) == std::signbit(values[i]));
      HOLDS(x <= decoded * static_cast<double>(b) * (1 + 0x1p-22) + 0x1p-149);
    }
  }
}

TEST(Fastsgd, AllEqualValues) {
  const std::vector<float> x(1000, -0.25F);
  for (const float value : there_and_back("fastsgd:tau=128", x)) {
    EXPECT_LE(value, -0.25F / 1.1F);
    EXPECT_GE(value, -0.25F);
  }
  EXPECT_EQ(kept(there_and_back("fastsgd:keep=1%", x)), 1000U) << "equal values go or stay together";
}

TEST(Fastsgd, Subnormals) {
  const std::vector<float> x = {0x1p-149F, -0x1p-148F, 0x1p-130F, 0, 0x1p-127F};
  const auto back = there_and_back("fastsgd:tau=2047", x);
  EXPECT_EQ(back[0], x[0]);
  EXPECT_EQ(back[1], x[1]);
  EXPECT_EQ(kept(back), 4U);
  EXPECT_EQ(there_and_back("fastsgd", {0x1p-149F}), (std::vector<float>{0x1p-149F}));
  // sum / b^L rounds to 0 from some L on: such codes are never sent.
  EXPECT_EQ(there_and_back("fastsgd:b=2,tau=2047", {0x1p-149F, 0x1p-149F}),
            (std::vector<float>{0x1p-149F, 0x1p-149F}));
}

TEST(Fastsgd, SumBeyondFloat32IsRange) {
  EXPECT_EQ(there_and_back("fastsgd", {-kLargest}), (std::vector<float>{-kLargest}));
  const Error error = error_of("fastsgd", {kLargest, -kLargest});
  EXPECT_EQ(error.code, ErrorCode::kRange);
  EXPECT_NE(error.message.find("scale the tensor down"), std::string::npos) << error.message;
}

TEST(Fastsgd, NotFiniteNamesTheElement) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error_of("fastsgd", {1, 2, nan, nan}).message.rfind("element 2 of the input is NaN", 0), 0U);
  const auto codec = codec_of("fastsgd");
  std::vector<float> residual = {0, kLargest};
  const std::vector<float> x = {0, kLargest};
  const auto part = testing::encode(*codec, x, residual);
  ASSERT_FALSE(part);
  EXPECT_EQ(part.error().code, ErrorCode::kNotFinite);
  EXPECT_EQ(residual, (std::vector<float>{0, kLargest})) << "an error must leave the residual alone";
}

// tau=auto sends the smallest set of whole codes that has at least the share.
TEST(Fastsgd, KeepIsAtLeastTheShareAndNoCodeTooMany) {
  for (const double share : {0.001, 0.01, 0.1, 0.5, 0.9}) {
    for (const std::uint64_t count : {1U, 10U, 1000U, 16384U, 16385U, 300000U}) {
      const std::vector<float> values = testing::normal_values(count, count);
      const auto back = there_and_back("fastsgd:keep=" + std::to_string(share), values);
      const double wanted =
          std::ceil(static_cast<double>(static_cast<float>(share)) * static_cast<double>(count));
      EXPECT_GE(static_cast<double>(kept(back)), wanted) << share << " of " << count;
      float least = kLargest;
      for (const float value : back) {
        if (value != 0) least = std::min(least, std::fabs(value));
      }
      const auto above =
          std::count_if(back.begin(), back.end(), [least](float value) { return std::fabs(value) > least; });
      EXPECT_LT(static_cast<double>(above), wanted) << "one code less would do: " << share << " of " << count;
    }
  }
}

// Most values are 0: fewer than the share are there to be kept.
TEST(Fastsgd, KeepOfSparseValuesIsAllOfThem) {
  for (const std::uint64_t count : {50U, 20000U, 100000U}) {
    std::vector<float> values(count, 0.0F);
    for (std::size_t i = 0; i < count; i += 17) values[i] = std::ldexp(1.0F, -static_cast<int>(i % 40));
    EXPECT_EQ(kept(there_and_back("fastsgd:keep=50%", values)), kept(values));
  }
}

TEST(Fastsgd, WithAResidualNothingIsLost) {
  for (const char* spec : {"fastsgd:residual=on", "fastsgd:b=2,tau=20", "fastsgd:keep=50%,b=1.9"}) {
    const auto codec = codec_of(spec);
    std::vector<float> residual(50000, 0.0F);
    for (std::uint64_t step = 0; step < 3; ++step) {
      const std::vector<float> in = testing::normal_values(residual.size(), step);
      std::vector<float> x(in.size());
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = in[i] + residual[i];
      const auto part = *testing::encode(*codec, in, residual);
      EXPECT_EQ(part.payload, testing::encode(*codec, x)->payload) << "x = in + residual";
      const auto back = *testing::decode(*codec, part.view(), x.size());
      for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(back[i] + residual[i], x[i]) << spec << " " << i;
    }
  }
  std::vector<float> residual = {-1, 5};
  const std::vector<float> in = {1, -5};
  ASSERT_TRUE(testing::encode(*codec_of("fastsgd"), in, residual));
  EXPECT_TRUE(same_bits(residual, std::vector<float>{0, 0})) << "x = 0 leaves nothing behind";
}

TEST(Fastsgd, ResidualOnAsksForErrorFeedback) {
  EXPECT_FALSE(codec_of("fastsgd")->info().error_feedback);
  EXPECT_TRUE(codec_of("fastsgd:residual=on")->info().error_feedback);
  EXPECT_EQ(codec_of("fastsgd:residual=on")->info().id, 6);
}

TEST(Fastsgd, Specs) {
  EXPECT_EQ(codec_of("fastsgd")->spec(), "fastsgd:b=1.1,tau=auto,keep=0.25,l=2,residual=off");
  EXPECT_EQ(codec_of("fastsgd:tau=128")->spec(), "fastsgd:b=1.1,tau=128,keep=0.25,l=2,residual=off");
  EXPECT_EQ(codec_of("fastsgd:keep=0.5%,l=5,residual=on,tau=auto")->spec(),
            "fastsgd:b=1.1,tau=auto,keep=0.005,l=5,residual=on");
  for (const char* spec : {"fastsgd:b=1", "fastsgd:b=2.0000003", "fastsgd:b=nan", "fastsgd:tau=0",
                           "fastsgd:tau=2048", "fastsgd:tau=1.5", "fastsgd:tau=", "fastsgd:keep=0",
                           "fastsgd:keep=100%", "fastsgd:l=0", "fastsgd:l=6", "fastsgd:residual=yes"}) {
    const auto codec = make_codec(spec);
    ASSERT_FALSE(codec) << spec;
    EXPECT_EQ(codec.error().code, ErrorCode::kInvalidArgument) << spec;
  }
  EXPECT_EQ(make_codec("fastsgd:tau=0").error().message,
            "fastsgd: tau=0 is out of range: give auto or a whole number 1 to 2047");
}

}  // namespace
}  // namespace deltawire::fastsgd_test
