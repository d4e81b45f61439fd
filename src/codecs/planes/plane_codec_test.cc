// What the codecs have in common that give bytes to a general compressor: layout, modes, levels, and what a
// decoder must refuse before the library sees a byte.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::plane_codec_test {
namespace {

using namespace testing;

constexpr std::size_t kChunk = 65536;

class Planes : public ::testing::TestWithParam<std::string> {
 protected:
  std::string with(const std::string& parameters) const { return GetParam() + ":" + parameters; }
  ErrorCode verdict(const Ints& bytes, std::uint64_t count) const {
    return testing::verdict_of(GetParam(), one_chunk(bytes, 0), count);
  }
};

INSTANTIATE_TEST_SUITE_P(Codecs, Planes, ::testing::Values("zstd", "zlib"),
                         [](const auto& param) { return param.param; });

std::vector<std::string> levels_of(const std::string& codec) {
  std::vector<std::string> levels;
  for (int level = 1; level <= (codec == "zlib" ? 9 : 19); ++level) levels.push_back(std::to_string(level));
  return levels;
}

Floats any_bits(std::size_t count) {
  CounterRng random(count);
  Floats values(count);
  for (float& value : values) value = std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
  return values;
}

TEST_P(Planes, ShortChunksAreStored) {
  const Floats values = {1.0F, -2.5F};
  const Encoded on = *testing::encode(*codec_of(GetParam()), values);
  EXPECT_EQ(testing::to_ints(on.payload), (Ints{0, 0, 0, 0, 0, 0x80, 0x20, 0x3F, 0xC0}));
  const Encoded off = *testing::encode(*codec_of(with("planes=off")), values);
  EXPECT_EQ(testing::to_ints(off.payload), (Ints{0, 0, 0, 0x80, 0x3F, 0, 0, 0x20, 0xC0}));
}

TEST_P(Planes, EveryBitComesBack) {
  for (const char* planes : {"planes=on", "planes=off"}) {
    const auto codec = codec_of(with(planes));
    for (const std::size_t count : {std::size_t{5}, std::size_t{1000}, 2 * kChunk + 3}) {
      Floats values = any_bits(count);
      const Encoded noise = *testing::encode(*codec, values);
      EXPECT_EQ(noise.payload.size(), 4 * count + (count + kChunk - 1) / kChunk) << "not stored";
      EXPECT_TRUE(testing::same_bits(*testing::decode(*codec, noise.view(), count), values)) << count;
      for (std::size_t i = 1; i < count; ++i) values[i] = values[i % 3];
      const Encoded part = *testing::encode(*codec, values);
      EXPECT_LT(part.payload.size(), count <= 5 ? 22 : noise.payload.size() / 8) << count;
      EXPECT_TRUE(testing::same_bits(*testing::decode(*codec, part.view(), count), values)) << count;
    }
  }
}

// None runs out of the memory that it was promised: then chunks would be stored.
TEST_P(Planes, EveryLevelCompressesChunksOfEverySize) {
  for (const std::string& level : levels_of(GetParam())) {
    const auto codec = codec_of(with("level=" + level));
    EXPECT_EQ(codec->spec(), with("level=" + level + ",planes=on"));
    for (const std::size_t count : {std::size_t{4096}, std::size_t{20000}, kChunk}) {
      const Floats values = testing::normal_values(count, 3);
      const Encoded part = *testing::encode(*codec, values);
      EXPECT_LT(part.payload.size(), count * 4 * 94 / 100) << level << " of " << count;
      EXPECT_TRUE(testing::same_bits(*testing::decode(*codec, part.view(), count), values));
    }
  }
}

TEST_P(Planes, ShortPartsNeedLessScratch) {
  const auto codec = codec_of(GetParam());
  const auto scratch = [&](std::uint64_t count) {
    return codec->sizes({.count = count, .dtype = DType::kF32}).scratch_bytes;
  };
  EXPECT_LT(scratch(1000) + 4 * (kChunk - 1000) - 64, scratch(kChunk));
  EXPECT_LE(scratch(100 * kChunk), scratch(kChunk));
}

TEST_P(Planes, PlanesAreWorthTheirWhile) {
  const Floats values = testing::normal_values(kChunk, 3);
  const std::size_t on = testing::encode(*codec_of(GetParam()), values)->payload.size();
  const std::size_t off = testing::encode(*codec_of(with("planes=off")), values)->payload.size();
  EXPECT_LT(on, off - off / 50);
}

TEST_P(Planes, ResidualIsSentWholeAndCleared) {
  const auto codec = codec_of(GetParam());
  Floats values(kChunk + 9, 0.25F);
  Floats residual(values.size(), 0.5F);
  values[kChunk + 1] = NAN;
  const Encoded part = *testing::encode(*codec, values, residual);
  const Floats back = *testing::decode(*codec, part.view(), values.size());
  EXPECT_EQ(back[0], 0.75F);
  EXPECT_EQ(back[kChunk], 0.75F);
  EXPECT_TRUE(std::isnan(back[kChunk + 1]));
  EXPECT_EQ(residual, Floats(values.size(), 0.0F));
}

TEST_P(Planes, DescribesModes) {
  const auto codec = codec_of(GetParam());
  Floats values = any_bits(2 * kChunk);
  std::fill_n(values.begin(), kChunk, 0.0F);
  const Encoded part = *testing::encode(*codec, values);
  std::vector<Section> sections;
  ASSERT_TRUE(codec->describe(part.view(), values.size(), sections));
  ASSERT_EQ(sections.size(), 3U);
  EXPECT_EQ(sections[0].bits, 16U);
  EXPECT_EQ(sections[1].bits, kChunk * 32);
  EXPECT_EQ(sections[2].bits, (part.chunk_ends[0] - 1) * 8);
}

TEST_P(Planes, RefusesModesAndLengths) {
  EXPECT_EQ(verdict({0, 1, 2, 3, 4}, 1), kAccepted);
  EXPECT_EQ(verdict({0, 1, 2, 3}, 1), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 1, 2, 3, 4, 5}, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({2, 1, 2, 3, 4}, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1}, 1), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({1, 0, 0, 0, 0}, 1), ErrorCode::kCorrupt);
}

// An encoder stores what it can't shorten: a stream as long as its values is never one of its.
TEST_P(Planes, RefusesAStreamThatIsNoShorter) {
  const auto codec = codec_of(GetParam());
  Encoded part = *testing::encode(*codec, Floats(64, 0.0F));
  const std::size_t bytes = part.payload.size() - 1;
  ASSERT_EQ(part.payload[0], std::byte{1});
  ASSERT_LT(bytes, 256U);
  EXPECT_EQ(testing::verdict_of(GetParam(), part, 64), kAccepted);
  EXPECT_EQ(testing::verdict_of(GetParam(), part, 63), ErrorCode::kCorrupt);
  EXPECT_EQ(testing::verdict_of(GetParam(), part, 65), ErrorCode::kCorrupt);
  EXPECT_EQ(testing::verdict_of(GetParam(), part, bytes / 4), ErrorCode::kCorrupt);
  part.payload.push_back(std::byte{0});
  ++part.chunk_ends[0];
  EXPECT_EQ(testing::verdict_of(GetParam(), part, 64), ErrorCode::kCorrupt);
  part.payload.resize(bytes);
  part.chunk_ends[0] = static_cast<std::uint32_t>(bytes);
  EXPECT_EQ(testing::verdict_of(GetParam(), part, 64), ErrorCode::kTruncated);
}

TEST_P(Planes, ParametersInTheirRange) {
  for (const char* parameters : {"level=0", "level=20", "level=01", "planes=yes"}) {
    EXPECT_FALSE(make_codec(with(parameters))) << parameters;
  }
}

}  // namespace
}  // namespace deltawire::plane_codec_test
