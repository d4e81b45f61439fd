// sketchml: its bytes by hand and against a slow model, what it does to values, how many bits keys take, and
// what a decoder must refuse.
#include <algorithm>
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/refusal_testing.h"
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
    .draws = true,
    .skips_zeros = true,
    .limits = {"sketchml:q=2,r=32,rows=3,cols=1"},
    .refused = {"q=1", "q=100", "q=1024", "r=1", "r=64", "rows=0", "rows=5", "cols=0.04", "cols=1.0000002",
                "cols=nan"},
}};

// sketchml once more, slow and in one piece, from spec.md: what the codec is compared with. It shares no code
// with the codec.

constexpr std::size_t kChunk = 65536;
constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;

std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

void append(std::vector<std::byte>& bytes, std::uint64_t number, int size) {
  for (int i = 0; i < size; ++i) bytes.push_back(static_cast<std::byte>(number >> (8 * i) & 255));
}

struct Sign {
  std::vector<float> lower;
  std::vector<float> mean;

  Sign(std::vector<float> magnitudes, std::size_t most) {
    if (magnitudes.empty()) return;
    std::sort(magnitudes.begin(), magnitudes.end());
    const std::size_t wanted = std::min(most, magnitudes.size());
    for (std::size_t i = 0; i < wanted; ++i) lower.push_back(magnitudes[i * magnitudes.size() / wanted]);
    lower.erase(std::unique(lower.begin(), lower.end()), lower.end());
    for (std::size_t i = 0; i < lower.size(); ++i) {
      const float upper = i + 1 < lower.size() ? lower[i + 1] : magnitudes.back();
      mean.push_back(static_cast<float>((static_cast<double>(lower[i]) + static_cast<double>(upper)) / 2));
    }
  }

  int bucket(float magnitude) const {
    return static_cast<int>(std::upper_bound(lower.begin(), lower.end(), magnitude) - lower.begin()) - 1;
  }
};

// The cell's column, one of `columns`.
std::uint32_t column_of(std::uint32_t seed, std::uint32_t key, int row, std::uint32_t columns) {
  const std::uint64_t number = std::uint64_t{key} * 4 + static_cast<std::uint64_t>(row);
  const std::uint64_t drawn = mix(mix(seed + kGolden) + kGolden * (number + 1)) >> 32;
  return static_cast<std::uint32_t>(drawn * columns >> 32);
}

int bytes_for(std::uint32_t gap) {
  return gap < 0x100 ? 1 : gap < 0x10000 ? 2 : gap < 0x1000000 ? 3 : 4;
}

int bits_for(int largest) {
  int bits = 0;
  while (largest >> bits != 0) ++bits;
  return bits;
}

struct Model {
  int q = 256;
  int r = 8;
  int rows = 2;
  float cols = 0.3F;

  struct Result {
    Encoded part;
    std::vector<float> decoded;
  };
  Result encode(const std::vector<float>& values, std::uint32_t seed) const;
};

// One chunk on its way.
struct Chunk {
  const Model& model;
  std::uint32_t seed;
  Model::Result& result;
  const std::vector<float>& values;
  std::vector<std::uint32_t> keys;

  void write() {
    std::vector<std::byte>& bytes = result.part.payload;
    append(bytes, keys.size(), 4);
    if (keys.empty()) return;
    append(bytes, keys[0], 4);
    const Sign signs[2] = {sign_of(false), sign_of(true)};
    for (const Sign& sign : signs) append(bytes, sign.mean.size(), 2);
    for (const Sign& sign : signs) {
      for (const float mean : sign.mean) append(bytes, std::bit_cast<std::uint32_t>(mean), 4);
    }
    for (const bool negative : {false, true}) {
      const Sign& sign = signs[negative ? 1 : 0];
      const auto buckets = static_cast<int>(sign.mean.size());
      const int groups = std::min(model.r / 2, buckets);
      for (int group = 0; group < groups; ++group) write_group(sign, negative, group, groups);
    }
  }

  Sign sign_of(bool negative) const {
    std::vector<float> magnitudes;
    for (const std::uint32_t key : keys) {
      if (std::signbit(values[key]) == negative) magnitudes.push_back(std::fabs(values[key]));
    }
    return {magnitudes, static_cast<std::size_t>(model.q / 2)};
  }

  void write_group(const Sign& sign, bool negative, int group, int groups) {
    const auto buckets = static_cast<int>(sign.mean.size());
    std::vector<std::uint32_t> chosen;
    int begin = buckets;
    int width = 0;
    for (int i = 0; i < buckets; ++i) {
      if (i * groups / buckets != group) continue;
      begin = std::min(begin, i);
      ++width;
    }
    for (const std::uint32_t key : keys) {
      if (std::signbit(values[key]) != negative) continue;
      const int bucket = sign.bucket(std::fabs(values[key]));
      if (bucket >= begin && bucket < begin + width) chosen.push_back(key);
    }
    std::vector<std::byte>& bytes = result.part.payload;
    append(bytes, chosen.size(), 4);
    BitStream flags;
    std::vector<std::byte> gaps;
    std::uint32_t least = keys[0];
    for (const std::uint32_t key : chosen) {
      flags.put(static_cast<std::uint64_t>(bytes_for(key - least) - 1), 2);
      append(gaps, key - least, bytes_for(key - least));
      least = key + 1;
    }
    flags.append_to(bytes);
    bytes.insert(bytes.end(), gaps.begin(), gaps.end());
    write_table(sign, negative, chosen, begin, width);
  }

  void write_table(const Sign& sign, bool negative, const std::vector<std::uint32_t>& chosen, int begin,
                   int width) {
    const auto columns = static_cast<std::uint32_t>(
        std::ceil(static_cast<double>(model.cols) * static_cast<double>(chosen.size())));
    std::vector<std::vector<int>> table(static_cast<std::size_t>(model.rows),
                                        std::vector<int>(columns, width - 1));
    for (const std::uint32_t key : chosen) {
      for (int row = 0; row < model.rows; ++row) {
        int& cell = table[static_cast<std::size_t>(row)][column_of(seed, key, row, columns)];
        cell = std::min(cell, sign.bucket(std::fabs(values[key])) - begin);
      }
    }
    BitStream cells;
    for (const auto& row : table) {
      for (const int cell : row) cells.put(static_cast<std::uint64_t>(cell), bits_for(width - 1));
    }
    cells.append_to(result.part.payload);
    for (const std::uint32_t key : chosen) {
      int found = 0;
      for (int row = 0; row < model.rows; ++row) {
        found = std::max(found, table[static_cast<std::size_t>(row)][column_of(seed, key, row, columns)]);
      }
      const float magnitude = sign.mean[static_cast<std::size_t>(begin + found)];
      result.decoded[key] = negative ? -magnitude : magnitude;
    }
  }
};

Model::Result Model::encode(const std::vector<float>& values, std::uint32_t seed) const {
  Result result;
  result.part.scalar = seed;
  result.decoded.assign(values.size(), 0.0F);
  Chunk chunk{*this, seed, result, values, {}};
  const auto close = [&] {
    chunk.write();
    result.part.chunk_ends.push_back(static_cast<std::uint32_t>(result.part.payload.size()));
    chunk.keys.clear();
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    if (chunk.keys.size() == kChunk) close();
    chunk.keys.push_back(static_cast<std::uint32_t>(i));
  }
  close();
  return result;
}

std::string spec_of(const Model& model) {
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
  const auto column = [&](std::uint32_t key) { return column_of(part.scalar, key, 0, 2); };
  const int cells =
      column(0) == 0 ? 0b10 : 0b01;  // bucket 0, and 1 in the other cell whether key 3 is there or not
  for (const int byte : {2, 0, 0, 0, 0, 0, 2, cells, 1, 0, 0, 0, 0, 2}) expected.push_back(byte);
  EXPECT_EQ(to_ints(part.payload), expected);
  EXPECT_EQ(*testing::decode(*codec, part.view(), 4),
            (Floats{1.5F, 0, -3, column(0) == column(3) ? 1.5F : 2}));
  std::vector<Section> sections;
  ASSERT_TRUE(codec->describe(part.view(), 4, sections));
  std::string described;
  for (const Section& each : sections)
    described += std::string(each.name) + " " + std::to_string(each.bits) + "; ";
  EXPECT_EQ(described, "chunk and group heads 160; means of buckets 96; keys 40; tables of buckets 8; ");
}

TEST(SketchmlBytes, NothingIsTheCountAlone) {
  const auto codec = codec_of("sketchml");
  EXPECT_EQ(to_ints(testing::encode(*codec, Floats{0, -0.0F})->payload), (Ints{0, 0, 0, 0}));
  EXPECT_TRUE(testing::encode(*codec, Floats{})->payload.empty());
}

TEST(SketchmlBytes, TheSeedIsDrawnFromTheStream) {
  const auto codec = codec_of("sketchml");
  const Floats x = testing::normal_values(1000, 1);
  const Encoded one = *testing::encode_view(*codec, {x.data(), x.size(), DType::kF32}, {}, 5);
  EXPECT_EQ(one.scalar, static_cast<std::uint32_t>(CounterRng(5).at(0) >> 32));
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
    Model model;
    model.q = 2 << random.next() % 9;
    model.r = 2 << random.next() % 5;
    model.rows = static_cast<int>(1 + random.next() % 4);
    model.cols = std::min(1.0F, 0.05F + static_cast<float>(random.next_uniform()));
    const std::string spec = spec_of(model);
    const Encoded part = *testing::encode(*codec_of(spec), values);
    const Model::Result expected = model.encode(values, part.scalar);
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
  const Model model;
  const Encoded part = *testing::encode(*codec_of("sketchml"), x);
  const Model::Result expected = model.encode(x, part.scalar);
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
  testing::expect_refused(
      codec->decode_pairs(part.view(), {values.data(), 65536, DType::kF32, keys.data(), 65537}, 1),
      ErrorCode::kOutputTooSmall);
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

// Bytes that sketchml must refuse: each rule of spec.md once.

constexpr std::string_view kSpec = "sketchml:q=4,r=2,rows=1,cols=1";

ErrorCode verdict(Ints bytes, std::uint64_t count = 1000, std::string_view spec = kSpec) {
  return testing::verdict_of(spec, one_chunk(std::move(bytes), 0), count);
}

// The example of spec.md: means at 12, the first group at 24 (flags 28, gaps 29 and 30, cells 31), the second
// at 32 (flags 36, gap 37).
const Ints kGood = {3,    0, 0, 0,    0,    0, 0, 0, 2, 0, 1, 0, 0, 0, 0xC0, 0x3F, 0, 0, 0,
                    0x40, 0, 0, 0x40, 0x40, 2, 0, 0, 0, 0, 0, 4, 1, 1, 0,    0,    0, 0, 3};

Ints with(Ints bytes, std::size_t at, Ints values) {
  std::copy(values.begin(), values.end(), bytes.begin() + static_cast<std::ptrdiff_t>(at));
  return bytes;
}

Ints float_bytes(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {static_cast<int>(bits & 255), static_cast<int>(bits >> 8 & 255), static_cast<int>(bits >> 16 & 255),
          static_cast<int>(bits >> 24)};
}

// Three buckets in one group, of the sign that the head has at this byte.
Ints three(int cells, std::size_t sign_at) {
  Ints bytes = {3, 0, 0,    0, 0, 0,    0,    0, 0, 0, 0, 0, 0, 0, 0x80, 0x3F, 0,
                0, 0, 0x40, 0, 0, 0x40, 0x40, 3, 0, 0, 0, 0, 0, 0, 0,    cells};
  bytes[sign_at] = 3;
  return bytes;
}

TEST(SketchmlRefusals, TheExampleIsAccepted) {
  EXPECT_EQ(verdict(kGood), kAccepted);
  EXPECT_EQ(verdict(kGood, 6), kAccepted) << "the last key is 5";
  const auto back = *testing::decode(*codec_of(kSpec), one_chunk(kGood, 0).view(), 6);
  EXPECT_EQ(back, (std::vector<float>{1.5F, 0, 0, -3, 0, 1.5F}));
}

TEST(SketchmlRefusals, Lengths) {
  for (std::size_t bytes = 1; bytes < kGood.size(); ++bytes) {
    EXPECT_EQ(verdict(Ints(kGood.begin(), kGood.begin() + static_cast<std::ptrdiff_t>(bytes))),
              ErrorCode::kTruncated)
        << bytes;
  }
  Ints longer = kGood;
  longer.push_back(0);
  EXPECT_EQ(verdict(longer), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 0, 0, 0}), kAccepted);
  EXPECT_EQ(verdict({0, 0, 0, 0, 0}), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, PairCounts) {
  EXPECT_EQ(verdict(with(kGood, 0, {1, 0, 1, 0}), 100000), ErrorCode::kCorrupt) << "65,537 pairs";
  const auto too_many =
      testing::decode(*codec_of(kSpec), one_chunk(with(kGood, 0, {1, 0, 1, 0}), 0).view(), 100000);
  EXPECT_NE(too_many.error().message.find("a number of pairs that this chunk can't have"), std::string::npos)
      << too_many.error().message;
  EXPECT_EQ(verdict(with(kGood, 0, {4})), ErrorCode::kCorrupt) << "more than the groups have";
  EXPECT_EQ(verdict(kGood, 2), ErrorCode::kCorrupt) << "more than elements";
  EXPECT_EQ(verdict(with(kGood, 0, {255, 255, 255, 255})), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(with(kGood, 24, {0})), ErrorCode::kCorrupt) << "a group of none";
  EXPECT_EQ(verdict(with(kGood, 24, {255, 255, 255, 255})), ErrorCode::kCorrupt) << "and of all";
}

// More keys than a table can have: what a decoder keeps of its cells has room for those of a chunk.
TEST(SketchmlRefusals, AGroupLargerThanAChunk) {
  constexpr std::size_t kKeys = 70000;
  Ints bytes = {0,           0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x3F, kKeys & 255, kKeys >> 8 & 255,
                kKeys >> 16, 0};
  bytes.resize(bytes.size() + kKeys / 4 + kKeys, 0);
  EXPECT_EQ(verdict(bytes, 100000, "sketchml:rows=4,cols=1"), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, Buckets) {
  EXPECT_EQ(verdict(with(kGood, 8, {3})), ErrorCode::kCorrupt) << "more than q / 2";
  EXPECT_EQ(verdict(with(kGood, 10, {3})), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(with(kGood, 10, {0, 1})), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}), ErrorCode::kCorrupt) << "none";
  for (const std::size_t sign_at : {8U, 10U}) {
    EXPECT_EQ(verdict(three(2, sign_at), 1000, "sketchml:q=8,r=2,rows=1,cols=0.05"), kAccepted);
    EXPECT_EQ(verdict(three(2, sign_at), 1000, "sketchml:q=4,r=2,rows=1,cols=0.05"), ErrorCode::kCorrupt);
  }
  EXPECT_EQ(
      verdict({1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0xC0, 0x3F, 0, 0, 0, 0x40, 1, 0, 0, 0, 0, 0, 1}),
      ErrorCode::kCorrupt)
      << "two of one key";
  // Two keys can't have two buckets above 0 and one below.
  EXPECT_EQ(verdict(with(kGood, 0, {2})), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, Means) {
  EXPECT_EQ(verdict(with(kGood, 12, float_bytes(2))), kAccepted) << "means may be equal";
  EXPECT_EQ(verdict(with(kGood, 12, {1, 0, 0, 0})), kAccepted) << "the smallest";
  EXPECT_EQ(verdict(with(kGood, 16, {255, 255, 0x7F, 0x7F})), kAccepted) << "the largest";
  EXPECT_EQ(verdict(with(kGood, 12, float_bytes(2.5F))), ErrorCode::kCorrupt) << "out of order";
  EXPECT_EQ(verdict(with(kGood, 12, float_bytes(0))), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(with(kGood, 12, float_bytes(-1))), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(with(kGood, 16, {0, 0, 0x80, 0x7F})), ErrorCode::kCorrupt) << "infinity";
  EXPECT_EQ(verdict(with(kGood, 20, {0, 0, 0xC0, 0x7F})), ErrorCode::kCorrupt) << "NaN";
  EXPECT_EQ(verdict(with(kGood, 20, float_bytes(-3))), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, Keys) {
  EXPECT_EQ(verdict(kGood, 5), ErrorCode::kCorrupt) << "key 5 is outside";
  EXPECT_EQ(verdict(with(kGood, 37, {5})), ErrorCode::kCorrupt) << "key 5 twice";
  EXPECT_EQ(verdict(with(kGood, 37, {0})), ErrorCode::kCorrupt) << "key 0 twice";
  EXPECT_EQ(verdict(with(kGood, 29, {1})), ErrorCode::kCorrupt) << "the first key isn't there";
  EXPECT_EQ(verdict(with(kGood, 4, {226, 3})), kAccepted) << "keys 994 to 999, with cells that they can have";
  EXPECT_EQ(verdict(with(kGood, 4, {227, 3})), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(with(kGood, 4, {255, 255, 255, 255})), ErrorCode::kCorrupt) << "keys must not wrap";
}

// One key; gaps of every length, and each in one byte more than it needs.
TEST(SketchmlRefusals, Gaps) {
  const auto chunk = [](int flag, const Ints& gap) {
    Ints bytes = {2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0x80, 0x3F, 2, 0, 0, 0, flag << 2, 0};
    bytes.insert(bytes.end(), gap.begin(), gap.end());
    return bytes;
  };
  constexpr std::uint64_t kAll = 0xFFFFFFFF;
  const auto status = [&](const Ints& bytes) {
    std::vector<Section> sections;
    const auto described = codec_of(kSpec)->describe(one_chunk(bytes, 0).view(), kAll, sections);
    return described ? kAccepted : described.error().code;
  };
  EXPECT_EQ(status(chunk(0, {255})), kAccepted);
  EXPECT_EQ(status(chunk(1, {0, 1})), kAccepted);
  EXPECT_EQ(status(chunk(1, {255, 0})), ErrorCode::kCorrupt);
  EXPECT_EQ(status(chunk(2, {0, 0, 1})), kAccepted);
  EXPECT_EQ(status(chunk(2, {255, 255, 0})), ErrorCode::kCorrupt);
  EXPECT_EQ(status(chunk(3, {0, 0, 0, 1})), kAccepted);
  EXPECT_EQ(status(chunk(3, {255, 255, 255, 0})), ErrorCode::kCorrupt);
  EXPECT_EQ(status(chunk(3, {0xFD, 255, 255, 255})), kAccepted) << "key 2^32 - 2";
  EXPECT_EQ(status(chunk(3, {0xFE, 255, 255, 255})), ErrorCode::kCorrupt) << "key 2^32 - 1 is outside";
  EXPECT_EQ(status(chunk(3, {255, 255, 255, 255})), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, Tables) {
  EXPECT_EQ(verdict(with(kGood, 31, {3})), kAccepted) << "bucket 1 for both: a value";
  EXPECT_EQ(verdict(with(kGood, 31, {0})), ErrorCode::kCorrupt) << "no key has the first cell: it must be 1";
  EXPECT_EQ(verdict(with(kGood, 31, {1 | 4})), ErrorCode::kCorrupt) << "a set pad";
  EXPECT_EQ(verdict(with(kGood, 28, {16})), ErrorCode::kCorrupt) << "a set pad behind the flags";
  // Numbers of two bits, of which 3 is none.
  const auto columns = column_of(0, 0, 0, 1);
  ASSERT_EQ(columns, 0U);
  EXPECT_EQ(verdict(three(2, 8), 1000, "sketchml:q=8,r=2,rows=1,cols=0.05"), kAccepted);
  EXPECT_EQ(verdict(three(3, 8), 1000, "sketchml:q=8,r=2,rows=1,cols=0.05"), ErrorCode::kCorrupt);
}

TEST(SketchmlRefusals, ChunksGoUpInKeys) {
  const auto codec = codec_of(kSpec);
  Encoded part = *testing::encode(*codec, std::vector<float>(65537, 1.0F));
  ASSERT_EQ(part.chunk_ends.size(), 2U);
  ASSERT_EQ(testing::verdict_of(kSpec, part, 65537), kAccepted);
  Encoded repeated = part;
  repeated.payload[part.chunk_ends[0] + 4] = std::byte{255};  // key 65536 becomes 65535
  repeated.payload[part.chunk_ends[0] + 5] = std::byte{255};
  repeated.payload[part.chunk_ends[0] + 6] = std::byte{0};
  EXPECT_EQ(testing::verdict_of(kSpec, repeated, 65537), ErrorCode::kCorrupt);
  Encoded empty = *testing::encode(*codec, std::vector<float>(65536, 1.0F));
  empty.payload.resize(empty.payload.size() + 4, std::byte{0});
  empty.chunk_ends.push_back(static_cast<std::uint32_t>(empty.payload.size()));
  EXPECT_EQ(testing::verdict_of(kSpec, empty, 65537), ErrorCode::kCorrupt)
      << "an empty chunk next to another";
  Ints two = kGood;
  two.insert(two.end(), kGood.begin(), kGood.end());
  two[kGood.size() + 4] = 9;
  Encoded shorter = one_chunk(two, 0);
  shorter.chunk_ends = {static_cast<std::uint32_t>(kGood.size()), static_cast<std::uint32_t>(two.size())};
  EXPECT_EQ(testing::verdict_of(kSpec, shorter, 1000), ErrorCode::kCorrupt)
      << "a short chunk before the last";
}

TEST(SketchmlRefusals, MoreElementsThanKeysCanName) {
  std::vector<Section> sections;
  const Encoded none = one_chunk({0, 0, 0, 0}, 0);
  EXPECT_TRUE(codec_of(kSpec)->describe(none.view(), 0xFFFFFFFF, sections));
  EXPECT_FALSE(codec_of(kSpec)->describe(none.view(), std::uint64_t{1} << 32, sections));
}

}  // namespace
}  // namespace deltawire::sketchml_test
