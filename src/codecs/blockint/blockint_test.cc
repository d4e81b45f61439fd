// blockint: its bytes, ties, blocks and limits, an independent model, and what a decoder must refuse.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/little_endian.h"
#include "codecs/codec_testing.h"

namespace deltawire::blockint_test {
namespace {

using namespace testing;

constexpr std::size_t kChunk = 65536;

std::size_t block_of(const Codec& codec) {
  const std::string spec = codec.spec();
  return std::stoul(spec.substr(spec.rfind('=') + 1));
}

float step_of(const Codec& codec, const Encoded& part, std::uint64_t i) {
  const std::size_t begin = i < kChunk ? 0 : part.chunk_ends[i / kChunk - 1];
  const std::size_t at = begin + i % kChunk / block_of(codec) * 4;
  return std::bit_cast<float>(load_le<std::uint32_t>(part.payload.data() + at));
}

// Half a step of the block, and the rounding of its multiples to float32.
const testing::Expects kExpects{{
    .codec = "blockint",
    .error_bound =
        [](const testing::EncodedValue& value) {
          return step_of(value.codec, value.part, value.i) * (0.5 + 0x1p-17);
        },
    .limits = {"blockint:bits=4,block=64", "blockint:bits=4,block=4096"},
    .refused = {"bits=5", "block=32", "block=8192", "block=100"},
}};

Ints with_step(float step, const Ints& codes) {
  Ints bytes;
  for (int i = 0; i < 4; ++i) bytes.push_back(static_cast<int>(bits_of(step) >> 8 * i & 0xFF));
  bytes.insert(bytes.end(), codes.begin(), codes.end());
  return bytes;
}

TEST(Blockint, StepsComeFirstThenCodesInTwosComplement) {
  const Encoded part = coded("blockint", {127, -127, 0.5F, 1.5F, -2.5F, -0.0F});
  EXPECT_EQ(testing::to_ints(part.payload), with_step(1, {127, 129, 0, 2, 254, 0}));
  EXPECT_EQ(part.scalar, 0U);
}

TEST(Blockint, FourBitsBeginWithTheLowHalfOfAByte) {
  const Encoded part = coded("blockint:bits=4", {7, -7, 0.5F, 1.5F, -2.5F, -3.5F, 1});
  EXPECT_EQ(testing::to_ints(part.payload), with_step(1, {0x97, 0x20, 0xCE, 0x01}));
  EXPECT_EQ(*testing::decode(*codec_of("blockint:bits=4"), part.view(), 7), (Floats{7, -7, 0, 2, -2, -4, 1}));
}

TEST(Blockint, EachBlockHasItsStep) {
  for (const char* spec : {"blockint:block=64", "blockint:bits=4,block=64"}) {
    const auto codec = codec_of(spec);
    const float most = std::string(spec).find("bits=4") == std::string::npos ? 127 : 7;
    Floats values(64 * 3 + 1, 0.0F);
    values[63] = most;
    values[64] = -most * 1024;
    values[192] = most / 4;
    const Encoded part = coded(spec, values);
    EXPECT_EQ(step_of(*codec, part, 0), 1);
    EXPECT_EQ(step_of(*codec, part, 64), 1024);
    EXPECT_EQ(bits_of(step_of(*codec, part, 128)), 0U);
    EXPECT_EQ(step_of(*codec, part, 192), 0.25F);
    EXPECT_TRUE(testing::same_bits(*testing::decode(*codec, part.view(), values.size()), values));
  }
}

TEST(Blockint, LargestAndSmallestValues) {
  for (const char* spec : {"blockint", "blockint:bits=4"}) {
    const auto codec = codec_of(spec);
    const auto back = *testing::decode(*codec, coded(spec, {kMax, -kMax}).view(), 2);
    EXPECT_TRUE(std::isfinite(back[0])) << spec;
    EXPECT_GT(back[0], 0.9999F * kMax);
    EXPECT_EQ(back[0], -back[1]);
    const Floats tiny = {kTiniest, -3 * kTiniest, 0};
    EXPECT_TRUE(testing::same_bits(*testing::decode(*codec, coded(spec, tiny).view(), 3), tiny)) << spec;
  }
}

// From the definition, in exact arithmetic.
TEST(Blockint, CodesAndResidualsAreTheModels) {
  for (const int most : {127, 7}) {
    const std::string spec = most == 127 ? "blockint:block=64" : "blockint:bits=4,block=64";
    Floats values = testing::normal_values(64 * 20, 9);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::ldexp(values[i], static_cast<int>(i / 64 * 13) - 140);
    }
    Floats residual(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) residual[i] = values[i] * 0.25F;
    const Floats before = residual;
    const auto codec = codec_of(spec);
    const Encoded part = *testing::encode(*codec, values, residual);
    const Floats back = *testing::decode(*codec, part.view(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      double largest = 0;
      for (std::size_t k = i / 64 * 64; k < i / 64 * 64 + 64; ++k) {
        largest = std::max(largest, static_cast<double>(std::fabs(values[k] + before[k])));
      }
      const float step = step_of(*codec, part, i);
      ASSERT_GE(static_cast<double>(step) * most, largest) << i;
      ASSERT_LT(static_cast<double>(std::nextafter(step, 0.0F)) * most, largest) << i;
      const float x = values[i] + before[i];
      const double code = std::nearbyint(static_cast<double>(x) / static_cast<double>(step));
      const float value = static_cast<float>(code) * step;
      ASSERT_EQ(bits_of(back[i]), bits_of(value + 0.0F)) << i;
      ASSERT_EQ(residual[i], x - value) << i;
    }
  }
}

ErrorCode verdict(const std::string& spec, const Ints& bytes, std::uint64_t count) {
  return testing::verdict_of(spec, one_chunk(bytes, 0), count);
}

TEST(BlockintRefusals, Codes) {
  EXPECT_EQ(verdict("blockint", with_step(1, {127, 129}), 2), kAccepted);
  EXPECT_EQ(verdict("blockint", with_step(1, {127, 128}), 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("blockint", with_step(0, {0, 0}), 2), kAccepted);
  EXPECT_EQ(verdict("blockint", with_step(0, {0, 1}), 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("blockint:bits=4", with_step(1, {0x97}), 2), kAccepted);
  EXPECT_EQ(verdict("blockint:bits=4", with_step(1, {0x87}), 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("blockint:bits=4", with_step(1, {0x78}), 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("blockint:bits=4", with_step(0, {0x10}), 2), ErrorCode::kCorrupt);
}

TEST(BlockintRefusals, LengthsAndPadding) {
  EXPECT_EQ(verdict("blockint", with_step(1, {0}), 2), ErrorCode::kTruncated);
  EXPECT_EQ(verdict("blockint", with_step(1, {0, 0, 0}), 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("blockint:bits=4", with_step(1, {0x07}), 1), kAccepted);
  EXPECT_EQ(verdict("blockint:bits=4", with_step(1, {0x17}), 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("blockint:bits=4", with_step(1, {}), 1), ErrorCode::kTruncated);
}

TEST(BlockintRefusals, Steps) {
  for (const std::uint32_t bits : {0x7C010203U, 0x7E124924U}) {
    const std::string spec = bits == 0x7C010203U ? "blockint" : "blockint:bits=4";
    for (const std::uint32_t good : {1U, bits}) {
      EXPECT_EQ(verdict(spec, with_step(std::bit_cast<float>(good), {1}), 1), kAccepted);
    }
    for (const std::uint32_t bad : {bits + 1, 0x7F800000U, 0x7FC00000U, 0x80000000U, 0xBF800000U}) {
      EXPECT_EQ(verdict(spec, with_step(std::bit_cast<float>(bad), {0}), 1), ErrorCode::kCorrupt) << bad;
    }
  }
  Ints second = with_step(1, with_step(-1, Ints(65, 0)));
  EXPECT_EQ(verdict("blockint:block=64", second, 65), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltawire::blockint_test
