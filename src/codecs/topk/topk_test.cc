// topk against a slow selection, published vectors, and bytes by hand.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/sparse/sparse_ops.h"
#include "codecs/spec_string.h"

namespace deltawire::topk_test {
namespace {

using namespace testing;

// What is sent is at most half a step or the last of 8 bits away, and what isn't sent by itself. A code's
// value is x, 0 or within a factor of two of x, so that the difference is exact.
const testing::Expects kExpects{{
    .codec = "topk",
    .error_bound = [](const testing::EncodedValue& value) { return std::fabs(value.x()); },
    .conservation_bound = [](const testing::EncodedValue&) { return 0.0; },
    .tiny_signs = {1, 0, 0, 0},
    .skips_zeros = true,
    .limits = {"topk:k=0.000001,positions=auto", "topk:k=0.1,chunk=64"},
    .refused = {"chunk=0", "chunk=63", "chunk=131072", "values=1bit"},
}};

// A mean may have the other sign, but no larger magnitude than the largest x has. What is left is one rounded
// subtraction.
double farthest_mean(const testing::EncodedValue& value) {
  return std::fabs(value.x()) + value.largest;
}
const testing::Expectation kExpectedOfBins = {
    .codec = "topk:k=0.2,values=2bit",
    .error_bound = farthest_mean,
    .conservation_bound = [](const testing::EncodedValue& value) { return farthest_mean(value) * 0x1p-24; },
    .tiny_signs = {1, 0, 0, 0},
    .skips_zeros = true,
};
testing::Expectation of(std::string_view spec) {
  testing::Expectation expectation = kExpectedOfBins;
  expectation.codec = spec;
  return expectation;
}
const testing::Expects kExpectsOfBins{kExpectedOfBins};
const testing::Expects kExpectsOfBlocks{of("topk:k=0.015625,values=2bit,chunk=4096")};

// The k largest by a sort of all.
Floats slow_topk(const Floats& values, float share) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&values](std::size_t a, std::size_t b) {
    return std::pair(-std::fabs(values[a]), a) < std::pair(-std::fabs(values[b]), b);
  });
  Floats kept(values.size(), 0.0F);
  const std::uint64_t count = kept_of(share, values.size());
  for (std::uint64_t i = 0; i < count; ++i) kept[order[i]] = values[order[i]] + 0.0F;
  return kept;
}

double energy(const Floats& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return sum;
}

// google-research/federated@a5af8c4433c9,
// compressed_communication/aggregators/comparison_methods/top_k_test.py, lines 78 to 140: the larger half of
// each client's values, and their sums.
TEST(Topk, PublishedVectors) {
  const Floats up = {1, 2, 3, 4};
  const Floats down = {4, 3, 2, 1};
  EXPECT_EQ(round_trip("topk:k=50%", up), (Floats{0, 0, 3, 4}));
  const auto codec = codec_of("topk:k=50%");
  for (const auto& [second, sum] : {std::pair{up, Floats{0, 0, 6, 8}}, {down, Floats{4, 3, 3, 4}}}) {
    Floats slot = round_trip("topk:k=50%", up);
    const auto part = coded("topk:k=50%", second);
    ASSERT_TRUE(codec->decode(part.view(), {slot.data(), 4, DType::kF32}, Into::kAccumulate, 1));
    EXPECT_EQ(slot, sum);
  }
  // The distortion that is published for one client, 5/4: the mean square of what isn't sent.
  Floats left(4, 0.0F);
  ASSERT_TRUE(testing::encode(*codec, up, left));
  EXPECT_EQ(energy(left) / 4, 1.25);
}

TEST(Topk, ByHand) {
  // Positions 2 and 3: the gap 0 is a zero; then the values.
  EXPECT_EQ(to_ints(coded("topk:k=50%", {1, 2, -3, 4}).payload),
            (Ints{0, 2, 0, 2, 0, 0, 0, 0b0, 0, 0, 0x40, 0xC0, 0, 0, 0x80, 0x40}));
  EXPECT_EQ(to_ints(coded("topk:k=50%,values=bf16", {1, 2, -3, 4}).payload),
            (Ints{0, 2, 0, 2, 0, 0, 0, 0b0, 0x40, 0xC0, 0x80, 0x40}));
  // The step is 4 / 127, and -3 is 95.25 of them.
  const auto small = coded("topk:k=50%,values=int8,positions=auto", {1, 2, -3, 4});
  EXPECT_EQ(to_ints(small.payload), (Ints{0, 2, 0, 2, 0, 0, 0, 0b0, 256 - 95, 127}));
  EXPECT_EQ(small.scalar, bits_of(std::nextafter(4.0F / 127, 1.0F)));
  EXPECT_EQ(coded("topk", {1, 2, -3, 4}).scalar, 0U);
}

TEST(Topk, EqualsTheSlowSelection) {
  for (const std::uint64_t count : {1U, 2U, 17U, 1000U, 1025U, 5000U, 140000U}) {
    Floats normal = testing::normal_values(count, count);
    Floats ties = normal;  // many equals, of both signs
    for (float& value : ties) value = std::round(value * 2) / 2 + 0.25F;
    for (const Floats* values : {&normal, &ties}) {
      for (const char* k : {"0.001", "0.05", "0.5", "0.99"}) {
        const std::string spec = std::string("topk:k=") + k;
        ASSERT_TRUE(same_bits(round_trip(spec, *values), slow_topk(*values, std::stof(k))))
            << spec << " of " << count;
      }
    }
  }
}

TEST(Topk, ZerosAreNotSent) {
  const auto nothing = coded("topk:k=50%,values=int8", Floats(10, -0.0F));
  EXPECT_EQ(to_ints(nothing.payload), (Ints{0, 0, 0}));
  EXPECT_EQ(nothing.scalar, 0U);
  EXPECT_EQ(to_ints(coded("topk:k=90%", {0, 0, -5, 0}).payload),
            (Ints{0, 1, 0, 2, 0, 0, 0, 0, 0, 0xA0, 0xC0}));
}

TEST(Topk, ChunksOf16384) {
  const auto part = coded("topk:k=0.5", testing::normal_values(65538, 1));
  ASSERT_EQ(part.chunk_ends.size(), 3U);  // 32,769
  const std::size_t last = part.chunk_ends[1];
  EXPECT_EQ(to_ints(part.payload)[last + 1], 1);
  EXPECT_EQ(part.payload.size() - last, 7U + 4);
}

TEST(Topk, LargestNumbersStayFinite) {
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(round_trip("topk:k=90%,values=bf16", {most, -most}), (Floats{0x1.FEp127F, -0x1.FEp127F}));
  for (const float value : round_trip("topk:k=90%,values=int8", {most, -most})) {
    EXPECT_NEAR(std::fabs(value) / most, 1, 0x1p-20);
  }
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(round_trip("topk:k=90%,values=int8", {least, -least}), (Floats{least, -least}));
}

TEST(Topk, OfPairsTheShareIsOneOfAllElements) {
  const std::vector<std::uint32_t> keys = {3, 10, 50, 99};
  const Floats values = {1, -4, 3, 2};
  const auto codec = codec_of("topk:k=2%");
  const auto part = *testing::encode_view(*codec, {values.data(), 4, DType::kF32, keys.data(), 100});
  const Floats back = *testing::decode(*codec, part.view(), 100);
  EXPECT_EQ(std::count(back.begin(), back.end(), 0.0F), 98);
  EXPECT_EQ(back[10], -4);
  EXPECT_EQ(back[50], 3);
  const auto none = *testing::encode_view(*codec, {values.data(), 0, DType::kF32, keys.data(), 100});
  EXPECT_EQ(to_ints(none.payload), (Ints{0, 0, 0}));
}

TEST(Topk, RefusesWhatNoEncoderWrites) {
  const auto verdict = [](std::string_view values, const Ints& bytes, std::uint32_t step,
                          std::uint64_t count) {
    return verdict_of("topk:values=" + std::string(values), testing::one_chunk(bytes, step), count);
  };
  const auto with = [](Ints values) {
    Ints bytes = {0, 2, 0, 2, 0, 0, 0, 0b0};
    bytes.insert(bytes.end(), values.begin(), values.end());
    return bytes;
  };
  EXPECT_EQ(verdict("fp32", with({0, 0, 0, 0, 0, 0, 0x80, 0xBF}), 0, 4), kAccepted);
  EXPECT_EQ(verdict("fp32", with({0, 0, 0, 0, 0, 0, 0x80, 0xBF}), 0, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("fp32", with({0, 0, 0, 0, 0, 0, 0x80, 0x7F}), 0, 4), ErrorCode::kCorrupt);  // Inf
  EXPECT_EQ(verdict("fp32", with({0, 0, 0x80, 0xFF, 0, 0, 0, 0}), 0, 4), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("fp32", with({0, 0, 0, 0, 0, 0, 0, 0}), 1, 4), ErrorCode::kCorrupt);  // a step
  EXPECT_EQ(verdict("bf16", with({0x7F, 0x7F, 0, 0}), 0, 4), kAccepted);
  EXPECT_EQ(verdict("bf16", with({0x80, 0x7F, 0, 0}), 0, 4), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("bf16", with({0x80, 0x7E, 0, 0}), 1, 4), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("int8", with({127, 129}), 1, 4), kAccepted);
  EXPECT_EQ(verdict("int8", with({127, 129}), int8::kLargestStep, 4), kAccepted);
  EXPECT_EQ(verdict("int8", with({127, 129}), int8::kLargestStep + 1, 4), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("int8", with({127, 129}), 0x80000001U, 4), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("int8", with({0, 128}), 1, 4), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("int8", with({0, 0}), 0, 4), kAccepted);
  EXPECT_EQ(verdict("int8", with({0, 1}), 0, 4), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("int8", {0, 0, 0}, 0, 4), kAccepted);
  EXPECT_EQ(verdict("int8", {0, 0, 0}, 1, 4), ErrorCode::kCorrupt);    // a step of nothing
  EXPECT_EQ(verdict("int8", with({0}), 1, 4), ErrorCode::kTruncated);  // no byte for the gap
  EXPECT_EQ(verdict("int8", with({0, 0, 0}), 1, 4), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict("int8", {0, 5, 0, 1, 2}, 1, 9), ErrorCode::kTruncated);
  EXPECT_EQ(verdict("int8", {0, 0}, 0, 9), ErrorCode::kTruncated);
  EXPECT_EQ(verdict("fp32", {0, 1, 64, 0, 0, 0, 0}, 0, 9), ErrorCode::kCorrupt);  // 16,385 of them
}

}  // namespace
}  // namespace deltawire::topk_test
