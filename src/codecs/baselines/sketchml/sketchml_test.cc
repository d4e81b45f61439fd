// sketchml: its bytes by hand and against a slow model, what it does to values, how many bits keys take.
#include <algorithm>
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/baselines/sketchml/sketchml_testing.h"
#include "codecs/codec_testing.h"

namespace deltawire::sketchml_test {
namespace {

using namespace testing;

// A value lies in its bucket, and comes out as the mean of that one or of a smaller one: between 0 and the
// largest value. Normally distributed ones are smaller than this.
const testing::Expects kExpects{{
    .codec = "sketchml",
    .error_bound = [](const testing::EncodedValue&) { return 8.0; },
    .conservation_bound = [](const testing::EncodedValue&) { return 0x1p-20; },
    .limits = {"sketchml:q=2,r=32,rows=3,cols=1"},
}};

std::string spec_of(const SketchmlModel& model) {
  char spec[96];
  std::snprintf(spec, sizeof spec, "sketchml:q=%d,r=%d,rows=%d,cols=%.9g", model.q, model.r, model.rows,
                static_cast<double>(model.cols));
  return spec;
}

TEST(SketchmlBytes, ByHand) {
  const auto codec = codec_of("sketchml:q=4,r=2,rows=1,cols=1");
  const Floats x = {1, 0, -3, 2};
  const Encoded part = *testing::encode(*codec, x);
  Ints expected = {3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0xC0, 0x3F, 0, 0, 0, 0x40, 0, 0, 0x40, 0x40};
  const auto column = [&](std::uint32_t key) { return testing::sketchml_column(part.scalar, key, 0, 2); };
  const int cells =
      column(0) == 0 ? 0b10 : 0b01;  // bucket 0, and 1 in the other cell whether key 3 is there or not
  for (const int byte : {2, 0, 0, 0, 0, 0, 2, cells, 1, 0, 0, 0, 0, 2}) expected.push_back(byte);
  EXPECT_EQ(to_ints(part.payload), expected);
  EXPECT_EQ(*testing::decode(*codec, part.view(), 4),
            (Floats{1.5F, 0, -3, column(0) == column(3) ? 1.5F : 2}));
}

TEST(SketchmlBytes, NothingIsTheCountAlone) {
  const auto codec = codec_of("sketchml");
  EXPECT_EQ(to_ints(testing::encode(*codec, Floats{0, -0.0F})->payload), (Ints{0, 0, 0, 0}));
  EXPECT_TRUE(testing::encode(*codec, Floats{})->payload.empty());
}

TEST(SketchmlBytes, TheSeedIsDrawnFromTheStream) {
  const auto codec = codec_of("sketchml");
  const Floats x = testing::normal_values(1000, 1);
  const TensorView view{x.data(), x.size(), DType::kF32};
  const Encoded one = *testing::encode_view(*codec, view, {}, 5);
  const Encoded other = *testing::encode_view(*codec, view, {}, 6);
  EXPECT_EQ(one.scalar, static_cast<std::uint32_t>(CounterRng(5).at(0) >> 32));
  EXPECT_NE(one.scalar, other.scalar);
  EXPECT_NE(one.payload, other.payload);
}

Floats drawn_values(CounterRng& random, std::uint64_t count) {
  const double nonzero = random.next_uniform();
  const double spread = random.next_uniform() * 30;
  const double unit = std::exp2(-120 + 200 * random.next_uniform());
  const double positive = random.next_uniform();
  const bool few = random.next() % 4 == 0;  // few different values: ties
  Floats values(count);
  for (float& value : values) {
    if (random.next_uniform() > nonzero) continue;
    const double place = few ? std::floor(random.next_uniform() * 4) / 4 : random.next_uniform();
    value = static_cast<float>(unit * std::exp2(spread * place));
    if (random.next_uniform() > positive) value = -value;
  }
  return values;
}

TEST(SketchmlBytes, EqualTheSlowModel) {
  CounterRng random(24);
  for (int round = 0; round < 150; ++round) {
    const Floats values = drawn_values(random, 1 + random.next() % (round % 16 == 0 ? 20000 : 400));
    SketchmlModel model;
    model.q = 2 << random.next() % 9;
    model.r = 2 << random.next() % 5;
    model.rows = static_cast<int>(1 + random.next() % 4);
    model.cols = std::min(1.0F, 0.05F + static_cast<float>(random.next_uniform()));
    const std::string spec = spec_of(model);
    const Encoded part = *testing::encode(*codec_of(spec), values);
    const SketchmlModel::Result expected = model.encode(values, part.scalar);
    ASSERT_EQ(part.chunk_ends, expected.part.chunk_ends) << spec << " round " << round;
    ASSERT_EQ(part.payload, expected.part.payload) << spec << " round " << round;
    const auto back = testing::decode(*codec_of(spec), part.view(), values.size());
    ASSERT_TRUE(back) << back.error().message;
    ASSERT_TRUE(same_bits(*back, expected.decoded)) << spec << " round " << round;
  }
}

TEST(SketchmlBytes, ChunksOf65536Pairs) {
  Floats x = testing::normal_values(65536 + 100, 3);
  x[5] = 0;
  const SketchmlModel model;
  const Encoded part = *testing::encode(*codec_of("sketchml"), x);
  const SketchmlModel::Result expected = model.encode(x, part.scalar);
  ASSERT_EQ(part.chunk_ends.size(), 2U);
  EXPECT_EQ(part.chunk_ends, expected.part.chunk_ends);
  EXPECT_EQ(part.payload, expected.part.payload);
  EXPECT_TRUE(same_bits(*testing::decode(*codec_of("sketchml"), part.view(), x.size()), expected.decoded));
}

TEST(SketchmlBytes, NothingFollowsAFullChunk) {
  Floats x(65536, 1.0F);
  x.resize(65600, 0.0F);
  EXPECT_EQ(testing::encode(*codec_of("sketchml"), x)->chunk_ends.size(), 1U);
}

TEST(SketchmlBytes, RoomIsForAllChunks) {
  const Floats x(65537, 1.0F);
  const auto codec = codec_of("sketchml");
  const Encoded part = *testing::encode(*codec, x);
  Floats values(65537);
  std::vector<std::uint32_t> keys(65537);
  const auto decoded =
      codec->decode_pairs(part.view(), {values.data(), 65536, DType::kF32, keys.data(), 65537}, 1);
  ASSERT_FALSE(decoded);
  EXPECT_EQ(decoded.error().code, ErrorCode::kOutputTooSmall);
}

// What the paper promises of a MinMaxSketch: a bucket only ever becomes a smaller one, inside its group, and
// no sign is flipped.
TEST(SketchmlValues, OnlyDecayAndKeepTheirSigns) {
  CounterRng random(3);
  for (int round = 0; round < 40; ++round) {
    const Floats values = drawn_values(random, 3000);
    SketchmlModel model;
    model.cols = round % 2 == 0 ? 0.05F : 0.5F;
    const Floats back = round_trip(spec_of(model), values);
    const SketchmlModel::Result expected = model.encode(values, 0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ((back[i] > 0) - (back[i] < 0), (values[i] > 0) - (values[i] < 0)) << i;
      ASSERT_LE(std::fabs(back[i]), std::fabs(expected.of_bucket[i])) << i;
      ASSERT_GE(std::fabs(back[i]), std::fabs(expected.least[i])) << i;
    }
  }
}

TEST(SketchmlValues, AsManyColumnsAsKeysLoseLittle) {
  const Floats x = testing::normal_values(20000, 4);
  const auto mean_error = [&](std::string_view spec) {
    const Floats back = round_trip(spec, x);
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) sum += std::fabs(double{back[i]} - double{x[i]});
    return sum / static_cast<double>(x.size());
  };
  EXPECT_LT(mean_error("sketchml:rows=4,cols=1"), 0.04);
  EXPECT_GT(mean_error("sketchml:rows=1,cols=0.05"), 0.06);
}

// What spec.md says of them.
TEST(SketchmlValues, DecayAsStated) {
  const Floats x = testing::normal_values(100000, 6);
  const auto share_left = [&](std::string_view spec) {
    double before = 0;
    double after = 0;
    const Floats back = round_trip(spec, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      before += std::fabs(double{x[i]});
      after += std::fabs(double{back[i]});
    }
    return after / before;
  };
  EXPECT_NEAR(share_left("sketchml"), 0.85, 0.01);
  EXPECT_NEAR(share_left("sketchml:q=512,r=32,rows=4,cols=0.05"), 0.91, 0.01);
}

TEST(SketchmlValues, AFewDifferentOnesAreExactWithoutCollisions) {
  const Floats same(300, -0.1F);
  EXPECT_EQ(round_trip("sketchml", same), same);
  EXPECT_EQ(round_trip("sketchml", {0, 5, 0, -7}), (Floats{0, 5, 0, -7}));
}

TEST(SketchmlValues, Limits) {
  EXPECT_EQ(round_trip("sketchml", {kMax, -kMax}), (Floats{kMax, -kMax}));
  EXPECT_EQ(round_trip("sketchml", {0x1p-149F, -0x1p-149F}), (Floats{0x1p-149F, -0x1p-149F}));
  EXPECT_EQ(round_trip("sketchml:rows=4,cols=1,q=2", {kMax, 0x1p-149F}), (Floats{kMax / 2, kMax / 2}))
      << "one bucket from end to end";
}

TEST(SketchmlResidual, HoldsWhatTheTableLost) {
  const auto codec = codec_of("sketchml");
  Floats residual = testing::normal_values(70000, 2);
  const Floats in = testing::normal_values(residual.size(), 1);
  Floats x(in.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = in[i] + residual[i];
  const Encoded part = *testing::encode(*codec, in, residual);
  EXPECT_EQ(part.payload, testing::encode(*codec, x)->payload);
  const Floats back = *testing::decode(*codec, part.view(), x.size());
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(residual[i], x[i] - back[i]) << i;
}

TEST(SketchmlResidual, StaysWhereASumIsNotFinite) {
  Floats residual = {0, kMax};
  const auto part = testing::encode(*codec_of("sketchml"), Floats{1, kMax}, residual);
  ASSERT_FALSE(part);
  EXPECT_EQ(part.error().code, ErrorCode::kNotFinite);
  EXPECT_EQ(residual, (Floats{0, kMax}));
}

// Keys at random places: 10 bits, 8 more for each gap of 256 or more in a list that has an eighth of the
// keys. The paper's 1.27 bytes a key are reached where an eighth of the elements has a value.
TEST(SketchmlKeys, TakeTenBitsAndTheirLongGaps) {
  for (const double density : {0.25, 0.125, 0.03, 0.001}) {
    CounterRng random(8);
    Pairs drawn;
    for (std::uint32_t i = 0; i < 65536; ++i) {
      const double gap = std::floor(std::log1p(-random.next_uniform()) / std::log1p(-density));
      drawn.dimension += static_cast<std::uint64_t>(gap);
      drawn.keys.push_back(static_cast<std::uint32_t>(drawn.dimension++));
    }
    drawn.values = testing::normal_values(drawn.keys.size(), 5);
    const auto codec = codec_of("sketchml");
    const TensorView view{drawn.values.data(), drawn.values.size(), DType::kF32, drawn.keys.data(),
                          drawn.dimension};
    const Encoded part = *testing::encode_view(*codec, view);
    std::vector<Section> sections;
    ASSERT_TRUE(codec->describe(part.view(), drawn.dimension, sections));
    const auto keys = std::find_if(sections.begin(), sections.end(),
                                   [](const Section& section) { return section.name == "keys"; });
    ASSERT_NE(keys, sections.end());
    const double bits = static_cast<double>(keys->bits) / static_cast<double>(drawn.keys.size());
    const auto longer = [&](double than) { return std::exp(than * std::log1p(-density / 8)); };
    EXPECT_NEAR(bits, 10 + 8 * longer(256) + 8 * longer(65536), 0.05) << density;
    if (density >= 0.125) {
      EXPECT_LE(bits, 8 * 1.27) << density;
    }
    RecordProperty(
        "bits_" + std::to_string(density),
        std::to_string(bits) + " of " + std::to_string(static_cast<double>(part.payload.size()) * 8 / 65536));
  }
}

TEST(SketchmlSpecs, ParametersAreChecked) {
  EXPECT_EQ(codec_of("sketchml")->spec(), "sketchml:q=256,r=8,rows=2,cols=0.3");
  EXPECT_EQ(codec_of("sketchml:cols=1,rows=4,r=32,q=2")->spec(), "sketchml:q=2,r=32,rows=4,cols=1");
  for (const char* spec : {"sketchml:q=1", "sketchml:q=100", "sketchml:q=1024", "sketchml:r=1",
                           "sketchml:r=64", "sketchml:rows=0", "sketchml:rows=5", "sketchml:cols=0.04",
                           "sketchml:cols=1.0000002", "sketchml:cols=nan"}) {
    EXPECT_EQ(make_codec(spec).error().code, ErrorCode::kInvalidArgument) << spec;
  }
}

}  // namespace
}  // namespace deltawire::sketchml_test
