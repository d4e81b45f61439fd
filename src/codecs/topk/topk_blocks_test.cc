// topk with values in four bins and with blocks: SparseLoCo's form.
#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"
#include "codecs/spec_string.h"

namespace deltawire::topk_test {
namespace {

using namespace testing;

constexpr const char* kSparseLoCo = "topk:k=1.5625%,values=2bit,chunk=4096";

// tplr-ai/templar@c2397ac524c9, src/tplr/compress.py, _quantize_values: what its four bins over six standard
// deviations make of the values, with means in float64.
Floats authors_values(const Floats& values) {
  double mean = 0;
  for (const float value : values) mean += value / static_cast<double>(values.size());
  double squares = 0;
  for (const float value : values) squares += std::pow(value - mean, 2);
  double scale = 6 * std::sqrt(squares / static_cast<double>(values.size() - 1)) / 4;
  if (scale == 0) scale = 1;
  std::vector<std::size_t> bins;
  double sums[4] = {};
  double counts[4] = {};
  for (const float value : values) {
    bins.push_back(
        static_cast<std::size_t>(std::clamp(std::nearbyint((value - mean) / scale + 2), 0.0, 3.0)));
    sums[bins.back()] += value - mean;
    counts[bins.back()] += 1;
  }
  Floats decoded;
  for (const std::size_t bin : bins) decoded.push_back(static_cast<float>(sums[bin] / counts[bin] + mean));
  return decoded;
}

// All but values near 0, so that every element is sent.
Floats far_from_zero(std::uint64_t count, std::uint64_t seed) {
  Floats values = normal_values(count, seed);
  for (float& value : values) value += std::copysign(1.0F, value);
  return values;
}

TEST(TopkBins, ByHand) {
  // d = sqrt(8 * 16 / 7): 4 is 0.94 of it.
  const auto part = coded("topk:k=0.99,values=2bit", {4, 4, 4, -4, -4, -4, 4, -4});
  const std::span<const std::byte> bytes(part.payload);
  ASSERT_EQ(bytes.size(), 26U);
  EXPECT_EQ(to_ints(bytes.first(8)), (Ints{0, 8, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(to_ints(bytes.subspan(8, 8)), (Ints{0, 0, 0, 0, 0, 0, 0x80, 0xC0}));
  EXPECT_EQ(to_ints(bytes.subspan(16, 8)), (Ints{0, 0, 0, 0, 0, 0, 0x80, 0x40}));
  EXPECT_EQ(to_ints(bytes.subspan(24)), (Ints{0b01'11'11'11, 0b01'11'01'01}));
  EXPECT_EQ(part.scalar, 0U);
}

// m = 0 and d = 4: -9, -3 and 3 lie on borders.
TEST(TopkBins, BordersBelongToOneBin) {
  const Floats values = {-9, -4, -3, 3, 6, 4, 2, -3, 2, 2, -1, 1, -3, 4, -4, 3};
  const Floats back = round_trip("topk:k=0.99,values=2bit", values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = values[i];
    EXPECT_EQ(back[i], x < -4 ? -9 : x < -3 ? -4 : x <= 3 ? 0.3F : 14.0F / 3) << x;
  }
}

TEST(TopkBins, AreThoseOfTheAuthors) {
  for (const std::uint64_t count : {5U, 6U, 64U, 1000U, 40001U}) {
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      Floats values = far_from_zero(count, seed);
      if (seed % 2 == 1) {
        for (float& value : values) value = value * value * value;  // heavy tails
      }
      const Floats wanted = authors_values(values);
      const Floats back = round_trip("topk:k=0.9999999,values=2bit", values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(back[i], wanted[i], 1e-6 * std::fabs(wanted[i])) << i << " of " << count << ", " << seed;
      }
    }
  }
}

TEST(TopkBins, FourValuesAreExact) {
  const Floats values = {1, 0, -2.5F, 0, 1e-30F, 3e38F};
  EXPECT_EQ(round_trip("topk:k=0.99,values=2bit", values), values);
  EXPECT_EQ(to_ints(coded("topk:k=0.1,values=2bit", {0, -2}).payload),
            (Ints{0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0xC0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(to_ints(coded("topk:k=0.1,values=2bit", {0, 0}).payload), (Ints{0, 0, 0}));
}

TEST(TopkBins, EqualValuesAreExact) {
  const Floats equal(1000, -0.1F);
  EXPECT_EQ(round_trip("topk:k=0.9999999,values=2bit", equal), equal);
  EXPECT_EQ(coded("topk:k=0.9999999,values=2bit", equal).payload.back(), std::byte{0b10'10'10'10});
}

TEST(TopkBins, LargestNumbersStayFinite) {
  constexpr float kMost = std::numeric_limits<float>::max();
  const Floats values = {kMost, -kMost, kMost, -kMost, kMost, -kMost};
  EXPECT_EQ(round_trip("topk:k=0.99,values=2bit", values), values);
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  const Floats tiny = {kLeast, -kLeast, kLeast, -kLeast, kLeast, -kLeast};
  EXPECT_EQ(round_trip("topk:k=0.99,values=2bit", tiny), tiny);
}

TEST(TopkBins, MeansStandInTheFirstChunkOnly) {
  const auto part = coded("topk:k=0.5,values=2bit", far_from_zero(65536, 1));
  ASSERT_EQ(part.chunk_ends.size(), 2U);
  std::vector<Section> sections;
  const auto codec = codec_of("topk:k=0.5,values=2bit");
  ASSERT_TRUE(codec->describe(part.view(), 65536, sections));
  const auto bits = [&](std::string_view name) {
    return std::ranges::find(sections, name, &Section::name)->bits;
  };
  EXPECT_EQ(bits("means"), 128U);
  EXPECT_EQ(bits("values"), 65536U);
  const Floats back = *testing::decode(*codec, part.view(), 65536);
  EXPECT_LE(std::set(back.begin(), back.end()).size(), 5U);  // the means, and 0
}

TEST(TopkBins, RefusesWhatNoEncoderWrites) {
  const auto verdict = [](Ints mean, const Ints& codes, std::uint32_t step = 0) {
    Ints bytes = {0, 2, 0, 2, 0, 0, 0, 0b0};
    mean.resize(16);
    bytes.insert(bytes.end(), mean.begin(), mean.end());
    bytes.insert(bytes.end(), codes.begin(), codes.end());
    return verdict_of("topk:values=2bit", testing::one_chunk(bytes, step), 4);
  };
  EXPECT_EQ(verdict({0, 0, 0x80, 0x3F}, {0b0100}), kAccepted);
  EXPECT_EQ(verdict({0, 0, 0x80, 0x3F}, {0b1111}), kAccepted);
  EXPECT_EQ(verdict({0, 0, 0x80, 0x7F}, {0b0100}), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0xC0, 0xFF}, {0}), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({}, {0b010000}), ErrorCode::kCorrupt);  // bits behind the last code
  EXPECT_EQ(verdict({}, {0b10000000}), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({}, {0}, 1), ErrorCode::kCorrupt);  // a step
  EXPECT_EQ(verdict({}, {}), ErrorCode::kTruncated);    // no byte for the gap
  EXPECT_EQ(verdict({}, {0, 0}), ErrorCode::kCorrupt);
  const auto short_of_means = testing::one_chunk({0, 1, 0, 0, 0, 0, 0, 0}, 0);
  EXPECT_EQ(verdict_of("topk:values=2bit", short_of_means, 4), ErrorCode::kTruncated);
  EXPECT_EQ(verdict_of("topk:values=2bit", testing::one_chunk({0, 0, 0}, 0), 4), kAccepted);
}

// Of each block of 64 elements what the selection of a part of its own sends.
TEST(TopkBlocks, AreSelectedApart) {
  for (const std::uint64_t count : {1U, 63U, 64U, 65U, 1000U, 5003U}) {
    Floats values = normal_values(count, count);
    for (std::size_t i = 0; i < count; i += 3) values[i] = std::round(values[i]);  // ties and zeros
    for (const char* k : {"0.001", "0.0234375", "0.1", "0.99"}) {
      Floats wanted;
      for (std::uint64_t at = 0; at < count; at += 64) {
        const auto begin = values.begin() + static_cast<std::ptrdiff_t>(at);
        const Floats block(begin,
                           begin + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(64, count - at)));
        const Floats back = round_trip(std::string("topk:k=") + k, block);
        wanted.insert(wanted.end(), back.begin(), back.end());
      }
      const Floats back = round_trip(std::string("topk:chunk=64,k=") + k, values);
      ASSERT_TRUE(same_bits(back, wanted)) << k << " of " << count;
    }
  }
}

TEST(TopkBlocks, PairsHaveTheBytesOfTheDenseTensor) {
  const Floats some = normal_values(700, 3);
  Floats dense(100000, 0.0F);
  std::vector<std::uint32_t> keys;
  for (std::size_t i = 0; i < some.size(); ++i) {
    keys.push_back(static_cast<std::uint32_t>(i < 500 ? 3 * i : 20000 + 400 * i - 200000));
    dense[keys.back()] = some[i];
  }
  for (const char* spec : {"topk:k=10%,chunk=256", kSparseLoCo}) {
    const auto part = *testing::encode_view(
        *codec_of(spec), {some.data(), some.size(), DType::kF32, keys.data(), dense.size()});
    EXPECT_EQ(part.payload, coded(spec, dense).payload) << spec;
  }
}

TEST(TopkBlocks, SparseLoCoTakes0149BitsAnElement) {
  constexpr std::uint64_t kCount = 1 << 20;
  const auto part = coded(kSparseLoCo, normal_values(kCount, 5));
  const double bits = static_cast<double>(part.payload.size() * 8);
  const double sent = static_cast<double>(kCount) / 64;
  EXPECT_LT(bits / sent, 7.54 + 2.01);
  EXPECT_LT(bits / static_cast<double>(kCount), 0.1492);
}

TEST(TopkSpecs, MeansHaveAKOfTheirOwn) {
  EXPECT_EQ(codec_of(kSparseLoCo)->mean_spec(), codec_of(kSparseLoCo)->spec());
  const auto codec = codec_of(std::string(kSparseLoCo) + ",pull=3.125%");
  EXPECT_EQ(codec->spec(), "topk:k=0.015625,values=2bit,positions=golomb,chunk=4096,pull=0.03125");
  EXPECT_EQ(codec->mean_spec(), "topk:k=0.03125,values=2bit,positions=golomb,chunk=4096");
  EXPECT_EQ(codec_of("topk:pull=k")->spec(), "topk:k=0.01,values=fp32,positions=golomb");
}

TEST(TopkSpecs, NameBlocksOnlyWhereThereAreSome) {
  EXPECT_EQ(codec_of("topk:chunk=none")->spec(), "topk:k=0.01,values=fp32,positions=golomb");
  EXPECT_EQ(codec_of(kSparseLoCo)->spec(), "topk:k=0.015625,values=2bit,positions=golomb,chunk=4096");
  EXPECT_EQ(codec_of("topk:chunk=64")->spec(), "topk:k=0.01,values=fp32,positions=golomb,chunk=64");
}

}  // namespace
}  // namespace deltawire::topk_test
