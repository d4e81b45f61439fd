#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"
#include "codecs/spec_string.h"

namespace deltawire::dropping_test {
namespace {

using namespace testing;

// A value is sent as it is or not at all.
const testing::Expects kExpects{{
    .codec = "dropping",
    .error_bound = [](const testing::EncodedValue& value) { return std::fabs(value.x()); },
    .conservation_bound = [](const testing::EncodedValue&) { return 0.0; },
    .tiny_signs = {1, -1, 0, 0},
    .draws = true,
    .skips_zeros = true,
    .limits = {"dropping:k=0.000001"},
}};

TEST(Dropping, ByHand) {
  // Of nine elements two are sent, by size: bits 1 and 8.
  const Floats values = {0, -2, 1, 0, 0, 0, 0, 0, 3};
  EXPECT_EQ(to_ints(coded("dropping:k=20%", values).payload),
            (Ints{0b10, 0b1, 0, 0, 0, 0xC0, 0, 0, 0x40, 0x40}));
  EXPECT_EQ(to_ints(coded("dropping:k=20%", Floats(9, 0.0F)).payload), (Ints{0, 0}));
}

// google-research/federated@a5af8c4433c9,
// compressed_communication/aggregators/comparison_methods/top_k_test.py, lines 78 to 92: of so few elements
// the sample is all.
TEST(Dropping, PublishedVector) {
  const auto back =
      testing::decode(*codec_of("dropping:k=50%"), coded("dropping:k=50%", {1, 2, 3, 4}).view(), 4);
  EXPECT_EQ(*back, (Floats{0, 0, 3, 4}));
}

TEST(Dropping, TiesAtTheThresholdAreAllSent) {
  const Floats values = {1, -2, 2, 3, 2};
  const auto back = testing::decode(*codec_of("dropping:k=40%"), coded("dropping:k=40%", values).view(), 5);
  EXPECT_EQ(*back, (Floats{0, -2, 2, 3, 2}));
  // Where the sample has more zeros than are dropped, what isn't 0 is sent.
  Floats mostly(40000, 0.0F);
  mostly[7] = 0x1p-149F;
  mostly[39999] = -1;
  const auto some = testing::decode(*codec_of("dropping"), coded("dropping", mostly).view(), mostly.size());
  EXPECT_EQ(*some, mostly);
}

// The places, once more: strata of a sample of 16,384, by numbers of the stream.
float slow_threshold(const Floats& values, float share, std::uint64_t stream) {
  const std::uint64_t count = std::min<std::uint64_t>(16384, values.size());
  Floats sample;
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t begin = i * values.size() / count;
    const std::uint64_t end = (i + 1) * values.size() / count;
    const std::uint64_t drawn = CounterRng(stream).at(i) >> 32;
    sample.push_back(std::fabs(values[begin + (drawn * (end - begin) >> 32)]));
  }
  std::sort(sample.begin(), sample.end(), std::greater<>());
  return sample[kept_of(share, count) - 1];
}

TEST(Dropping, SendsWhatReachesTheSamplesThreshold) {
  for (const std::uint64_t count : {1U, 100U, 16384U, 16385U, 200000U}) {
    const Floats values = testing::normal_values(count, count);
    for (const std::uint64_t stream : {1U, 2U}) {
      const auto part = coded("dropping:k=0.05", values, stream);
      const float least = slow_threshold(values, 0.05F, stream);
      const Floats back = *testing::decode(*codec_of("dropping:k=0.05"), part.view(), count);
      for (std::uint64_t i = 0; i < count; ++i) {
        ASSERT_EQ(back[i], std::fabs(values[i]) >= least ? values[i] : 0) << i << " of " << count;
      }
    }
  }
}

TEST(Dropping, RefusesWhatNoEncoderWrites) {
  const auto verdict = [](const Ints& bytes, std::uint64_t count) {
    return verdict_of("dropping", one_chunk(bytes, 0), count);
  };
  EXPECT_EQ(verdict({0b100, 0, 0, 0x80, 0x3F}, 3), kAccepted);
  EXPECT_EQ(verdict({0b100, 0, 0, 0, 0x80}, 3), kAccepted);  // -0
  EXPECT_EQ(verdict({0b100, 0, 0, 0x80, 0x3F}, 2), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0b100, 0, 0, 0x80, 0x3F}, 9), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0b100, 0, 0, 0x80}, 3), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0b100, 0, 0, 0x80, 0x3F, 0}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0b100, 0, 0, 0x80, 0x7F}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0b100, 0, 0, 0xC0, 0xFF}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 0}, 9), kAccepted);
  EXPECT_EQ(verdict({0, 0b10}, 9), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0}, 9), ErrorCode::kTruncated);
  EXPECT_EQ(verdict_of("dropping", one_chunk({0}, 1), 3), ErrorCode::kCorrupt);  // a scalar
}

}  // namespace
}  // namespace deltawire::dropping_test
