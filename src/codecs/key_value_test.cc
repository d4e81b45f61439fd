// What every codec with a key-value form owes, driven by the registry.
#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/random.h"
#include "base/refusal_testing.h"
#include "codecs/codec_testing.h"

namespace deltawire::key_value_test {
namespace {

using namespace testing;

std::vector<std::string> key_value_specs() {
  std::vector<std::string> specs;
  for (const std::string& spec : testing::conformance_specs()) {
    if (codec_of(spec)->info().key_value) specs.push_back(spec);
  }
  return specs;
}

class KeyValue : public ::testing::TestWithParam<std::string> {
 protected:
  Result<Encoded> encode(const Pairs& pairs, std::span<float> residual = {}) const {
    return testing::encode_view(*codec_, view(pairs), residual);
  }

  static TensorView view(const Pairs& pairs) {
    return {pairs.values.data(), pairs.values.size(), DType::kF32, pairs.keys.data(), pairs.dimension};
  }

  ErrorCode code_of(const Pairs& pairs) const {
    const auto part = encode(pairs);
    return part ? ErrorCode{} : part.error().code;
  }

  std::unique_ptr<const Codec> codec_ = codec_of(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Codecs, KeyValue, ::testing::ValuesIn(key_value_specs()),
                         [](const auto& param) { return testing::test_name(param.param); });

// About `share` of the elements, normally distributed.
Pairs drawn_pairs(std::uint64_t dimension, double share, std::uint64_t seed) {
  Pairs pairs;
  pairs.dimension = dimension;
  const std::vector<float> values = testing::normal_values(dimension, seed);
  CounterRng random(seed + 1);
  for (std::uint64_t key = 0; key < dimension; ++key) {
    if (random.next_uniform() >= share) continue;
    pairs.keys.push_back(static_cast<std::uint32_t>(key));
    pairs.values.push_back(values[key]);
  }
  return pairs;
}

std::vector<float> dense_of(const Pairs& pairs) {
  std::vector<float> values(pairs.dimension, 0.0F);
  for (std::size_t i = 0; i < pairs.keys.size(); ++i) values[pairs.keys[i]] = pairs.values[i];
  return values;
}

const std::pair<std::uint64_t, double> kShapes[] = {
    {1, 1.0}, {1, 0.0}, {700, 0.2}, {16384, 1.0}, {16390, 1.0}, {70000, 0.9}, {200000, 0.01}, {300000, 0.0}};

TEST_P(KeyValue, SameBytesAsTheDenseTensor) {
  for (const auto& [dimension, share] : kShapes) {
    Pairs pairs = drawn_pairs(dimension, share, dimension);
    const std::vector<float> dense = dense_of(pairs);
    // Zeros that are given are as good as zeros that aren't.
    for (std::size_t i = 0; i < pairs.values.size(); i += 5) pairs.values[i] = i % 2 == 0 ? 0.0F : -0.0F;
    const auto part = encode(pairs);
    ASSERT_TRUE(part) << part.error().message;
    const Encoded expected = *testing::encode(*codec_, dense_of(pairs));
    EXPECT_EQ(part->payload, expected.payload) << dimension << " " << share;
    EXPECT_EQ(part->chunk_ends, expected.chunk_ends);
    EXPECT_EQ(part->scalar, expected.scalar);
  }
}

// Sums in both forms must take the same order: see FastsgdBytes.TheSumTakesTheStatedOrder.
TEST_P(KeyValue, StatisticsDoNotDependOnTheForm) {
  for (const std::uint32_t second : {18U, 19U, 10U, 65538U}) {
    const Pairs pairs{{0, 1, 2, second}, {0x1p24F, 1, 0x1p-29F, 0x1p-29F}, 70000};
    EXPECT_EQ(encode(pairs)->scalar, testing::encode(*codec_, dense_of(pairs))->scalar) << second;
  }
}

TEST_P(KeyValue, PairsAreTheDenseTensorsNonZeros) {
  for (const auto& [dimension, share] : kShapes) {
    const Encoded part = *encode(drawn_pairs(dimension, share, dimension));
    const std::vector<float> dense =
        *testing::decode(*codec_, part.view(), dimension, Into::kOverwrite, 0.5F, -7);
    Pairs back;
    back.dimension = dimension;
    back.keys.resize(dimension);
    back.values.resize(dimension);
    const TensorSlot slot{back.values.data(), dimension, DType::kF32, back.keys.data(), dimension};
    const auto pairs = codec_->decode_pairs(part.view(), slot, 0.5F);
    ASSERT_TRUE(pairs) << pairs.error().message;
    back.keys.resize(*pairs);
    back.values.resize(*pairs);
    EXPECT_TRUE(std::is_sorted(back.keys.begin(), back.keys.end()));
    EXPECT_EQ(std::count(back.values.begin(), back.values.end(), 0.0F), 0);
    EXPECT_TRUE(same_bits(dense_of(back), dense)) << dimension << " " << share;

    // Into room for exactly these pairs, and for one less.
    std::vector<float> values(*pairs);
    std::vector<std::uint32_t> keys(*pairs);
    TensorSlot tight{values.data(), *pairs, DType::kF32, keys.data(), dimension};
    EXPECT_EQ(codec_->decode_pairs(part.view(), tight, 0.5F), *pairs);
    EXPECT_TRUE(same_bits(values, back.values));
    if (*pairs == 0) continue;
    tight.count = *pairs - 1;
    EXPECT_EQ(codec_->decode_pairs(part.view(), tight, 0.5F).error().code, ErrorCode::kOutputTooSmall);
    // A dimension that excludes the last key.
    tight = {values.data(), *pairs, DType::kF32, keys.data(), keys.back()};
    if (keys.back() > 0) {
      EXPECT_EQ(codec_->decode_pairs(part.view(), tight, 0.5F).error().code, ErrorCode::kCorrupt);
    }
  }
}

TEST_P(KeyValue, BadKeysAreRefusedAndNamed) {
  const Pairs good{{2, 5, 9}, {1, -2, 3}, 10};
  EXPECT_TRUE(encode(good));
  Pairs pairs = good;
  pairs.keys = {2, 9, 5};
  EXPECT_EQ(code_of(pairs), ErrorCode::kInvalidArgument);
  EXPECT_EQ(encode(pairs).error().message.rfind("key 5 at index 2 is not above", 0), 0U)
      << encode(pairs).error().message;
  pairs.keys = {2, 2, 9};
  EXPECT_EQ(encode(pairs).error().message.rfind("key 2 at index 1 is not above", 0), 0U)
      << encode(pairs).error().message;
  pairs.keys = {2, 5, 10};
  EXPECT_EQ(code_of(pairs), ErrorCode::kInvalidArgument);
  EXPECT_EQ(encode(pairs).error().message.rfind("key 10 at index 2 is outside", 0), 0U)
      << encode(pairs).error().message;
  pairs.keys = {0xFFFFFFFF, 0, 1};
  EXPECT_EQ(code_of(pairs), ErrorCode::kInvalidArgument);
}

TEST_P(KeyValue, ValuesThatAreNotFiniteAreNamedByIndexAndKey) {
  if (!codec_->info().finite_only) GTEST_SKIP();
  testing::expect_refused(encode({{2, 5, 9}, {1, std::numeric_limits<float>::infinity(), 3}, 10}),
                          ErrorCode::kNotFinite, "index 1 (key 5)");
}

TEST_P(KeyValue, AResidualIsRefused) {
  std::vector<float> residual(3, 0.5F);
  testing::expect_refused(encode({{2, 5, 9}, {1, -2, 3}, 10}, residual), ErrorCode::kInvalidArgument);
  EXPECT_EQ(residual, std::vector<float>(3, 0.5F));
}

// Bounds by the number of pairs: a part of 2^32 - 1 elements, nearly all of them absent.
TEST_P(KeyValue, LargestDimension) {
  const std::uint64_t dimension = 0xFFFFFFFF;
  const Pairs pairs{{0, 77, 0xFFFFFFFD, 0xFFFFFFFE}, {4, 1, -1, 2}, dimension};
  EXPECT_LT(codec_->sizes(view(pairs)).payload_bytes, 1000U);
  const auto part = encode(pairs);
  ASSERT_TRUE(part) << part.error().message;
  std::vector<float> values(4);
  std::vector<std::uint32_t> keys(4);
  EXPECT_EQ(codec_->decode_pairs(part->view(), {values.data(), 4, DType::kF32, keys.data(), dimension}, 1),
            4U);
  EXPECT_EQ(keys, pairs.keys);
}

TEST_P(KeyValue, HostileBytesGiveTheSameAnswerInBothForms) {
  const Encoded part = *encode(drawn_pairs(700, 0.2, 3));
  for (std::size_t bit = 0; bit < part.payload.size() * 8; bit += whole_or_brief<std::size_t>(1, 3)) {
    Encoded flipped = part;
    flipped.payload[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto dense = testing::decode(*codec_, flipped.view(), 700);
    std::vector<float> values(700);
    std::vector<std::uint32_t> keys(700);
    const auto pairs =
        codec_->decode_pairs(flipped.view(), {values.data(), 700, DType::kF32, keys.data(), 700}, 1);
    ASSERT_EQ(dense.has_value(), pairs.has_value()) << bit;
  }
}

// Codecs without the form say so.
TEST(DenseOnly, KeyValueFormIsRefused) {
  for (const CodecInfo* info : registered_codecs()) {
    if (info->key_value) continue;
    float value = 0;
    std::uint32_t key = 0;
    const auto codec = codec_of(info->name);
    EXPECT_EQ(codec->decode_pairs({}, {&value, 1, DType::kF32, &key, 10}, 1).error().code,
              ErrorCode::kInvalidArgument)
        << info->name;
  }
}

}  // namespace
}  // namespace deltawire::key_value_test
