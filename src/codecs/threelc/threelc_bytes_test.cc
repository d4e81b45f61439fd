// The bytes of 3lc, and how many they are.
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc_bytes_test {
namespace {

using testing::bits_of;
using testing::codec_of;
using testing::to_ints;
using Ints = std::vector<int>;

Ints coded(std::string_view spec, const std::vector<float>& values) {
  const auto part = testing::encode(*codec_of(spec), values);
  return part ? to_ints(part->payload) : Ints{};
}

std::uint64_t coded_bytes(std::string_view spec, const std::vector<float>& values) {
  return testing::encode(*codec_of(spec), values)->payload.size();
}

TEST(ThreelcBytes, PaperLayoutWithTiesAwayFromZero) {
  const std::vector<float> x = {.3F, .1F, -.4F, 0, .2F, -.1F, -.1F, -.1F, 0, .3F};
  EXPECT_EQ(coded("3lc:runs=off", x), (Ints{0, 184, 122}));
  EXPECT_EQ(coded("3lc:s=1.75,runs=off", x), (Ints{0, 94, 121}));
  EXPECT_EQ(coded("3lc:runs=off", {1, -1, 0}), (Ints{0, 175}));
  EXPECT_EQ(coded("3lc:runs=off", {0, 0, 0, 0, 0, 1, -1, 0, 0, 0}), (Ints{0, 118, 130}));
}

TEST(ThreelcBytes, ScalarIsTheBitsOfM) {
  const std::vector<float> x = {.3F, -.4F};
  EXPECT_EQ(testing::encode(*codec_of("3lc"), x)->scalar, bits_of(.4F));
  EXPECT_EQ(testing::encode(*codec_of("3lc:s=1.75"), x)->scalar, bits_of(.4F * 1.75F));
}

TEST(ThreelcBytes, RowsOf320HaveStride64) {
  std::vector<float> x(320 + 6, 0.0F);
  x[1] = 1;         // row 0, byte 1, highest digit
  x[320 - 1] = -1;  // row 0, byte 63, lowest digit
  x[320 + 3] = 1;   // row of 6: stride 2, byte 1, second digit
  Ints expected(1 + 64 + 2, 121);
  expected[0] = 0;
  expected[1 + 1] = 121 + 81;
  expected[1 + 63] = 121 - 1;
  expected[1 + 64 + 1] = 121 + 27;
  EXPECT_EQ(coded("3lc:runs=off", x), expected);
}

TEST(ThreelcBytes, ZeroRunTable) {
  const std::pair<std::size_t, Ints> table[] = {
      {1, {121}},       {2, {243}},       {13, {254}},           {14, {255}},          {15, {255, 121}},
      {27, {255, 254}}, {28, {255, 255}}, {29, {255, 255, 121}}, {42, {255, 255, 255}}};
  for (const auto& [run, expected] : table) {
    std::vector<std::byte> bytes(run, std::byte{121});
    bytes.insert(bytes.begin(), std::byte{7});
    bytes.push_back(std::byte{9});
    std::vector<std::byte> coded(bytes.size());
    const auto& kernels = threelc::kernels_for(TargetId::kReference);
    coded.resize(kernels.zero_runs(bytes.data(), static_cast<std::uint32_t>(bytes.size()), coded.data()));
    Ints framed = expected;
    framed.insert(framed.begin(), 7);
    framed.push_back(9);
    EXPECT_EQ(to_ints(coded), framed) << run;
  }
}

TEST(ThreelcBytes, ZeroRunsThroughTheCodec) {
  std::vector<float> x(15 * 5, 0.0F);
  EXPECT_EQ(coded("3lc:mode=paper", x), (Ints{1, 255, 121}));
  x[0] = 1;
  EXPECT_EQ(coded("3lc:mode=paper", x), (Ints{1, 202, 255}));
}

TEST(ThreelcBytes, RiceBytesByHand) {
  // 2 of 400: k = 7. Gap 4: no ones, 0, low bits 0000100. Gap 168 = 128 + 40: 1, 0, low bits 0101000.
  std::vector<float> x(400, 0.0F);
  x[4] = 1;
  x[173] = -1;
  // In the order of the stream: 0 0010000 | 0 (sign) 10 00010 | 10 1 (sign)
  EXPECT_EQ(coded("3lc", x), (Ints{2, 7, 2, 0, 0x08, 0x42, 0x05}));
}

// With parameter 0 a digit takes one bit, and its sign another: of 40,960 digits 4 of 7 take fewer bits than
// base 3^5.
TEST(ThreelcBytes, RiceWinsWhereMoreThanHalfIsSent) {
  std::vector<float> x(40960, 0.0F);
  std::uint32_t sent = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (i % 7 >= 4) continue;
    x[i] = i % 2 == 0 ? 1.0F : -1.0F;
    ++sent;
  }
  const auto part = *testing::encode(*codec_of("3lc"), x);
  ASSERT_EQ(part.payload[0], std::byte{2});
  ASSERT_EQ(x.back(), -1);
  EXPECT_EQ(part.payload.size(), 4 + (x.size() + sent + 7) / 8);
}

TEST(ThreelcBytes, RiceEscape) {
  // 500 with gaps of 19, then one gap of 30,978, which at k = 6 would take 484 ones.
  std::vector<float> x(40960, 0.0F);
  for (std::size_t i = 0; i < 500; ++i) x[i * 20] = 1;
  x[40959] = -1;
  const auto codec = codec_of("3lc");
  const auto part = *testing::encode(*codec, x);
  ASSERT_EQ(part.payload[0], std::byte{2});
  ASSERT_EQ(part.payload[1], std::byte{6});
  constexpr std::uint64_t kBits = 500 * (1 + 6 + 1) + 24 + 16 + 1;
  EXPECT_EQ(part.payload.size(), 4 + (kBits + 7) / 8);
  EXPECT_EQ(*testing::decode(*codec, part.view(), x.size()), x);
}

// Gaps around 24 * 2^6, where the code of 24 ones and more ends and the raw gap begins.
TEST(ThreelcBytes, RiceEscapeBeginsAt24Ones) {
  for (const std::size_t gap : {24 * 64 - 1U, 24 * 64U, 24 * 64 + 1U}) {
    std::vector<float> x(10000, 0.0F);
    for (std::size_t i = 0; i < 100; ++i) x[80 * i] = 1;
    x[80 * 99 + 1 + gap] = 1;
    const auto part = *testing::encode(*testing::codec_of("3lc"), x);
    ASSERT_EQ(to_ints(part.payload)[0], 2) << "positions";
    ASSERT_EQ(to_ints(part.payload)[1], 6) << "low bits";
    // The first position takes a zero and 6 bits, 99 gaps of 79 one bit more, and each a sign.
    const std::size_t last = gap < 24 * 64 ? 23 + 1 + 6 : 24 + 16;
    const std::size_t bits = (7 + 1) + 99 * (8 + 1) + last + 1;
    EXPECT_EQ(part.payload.size(), 1 + 3 + (bits + 7) / 8) << gap;
    EXPECT_EQ(*testing::decode(*testing::codec_of("3lc"), part.view(), x.size()), x) << gap;
  }
}

TEST(ThreelcBytes, SmallestModeWinsAndTiesGoToTheLowestId) {
  const std::vector<float> dense = testing::sparse_values(40960, 0.9, 1);
  EXPECT_EQ(coded("3lc", dense)[0], 0);
  const std::vector<float> zeros(5, 0.0F);
  EXPECT_EQ(coded("3lc", zeros), (Ints{0, 121}));  // one byte either way
  const std::vector<float> fourteen(70, 0.0F);
  EXPECT_EQ(coded("3lc", fourteen), (Ints{1, 255}));
  // 42 zero bytes: 3 codes, and 3 bytes of an empty list of positions.
  EXPECT_EQ(coded("3lc", std::vector<float>(42 * 5, 0.0F)), (Ints{1, 255, 255, 255}));
  EXPECT_EQ(coded("3lc", std::vector<float>(43 * 5, 0.0F)), (Ints{2, 15, 0, 0}));
}

TEST(ThreelcBytes, StatedSizesOfAMillionElements) {
  constexpr std::uint64_t kMillion = 1000000;
  constexpr std::uint64_t kChunks = 25;
  const std::vector<float> zeros(kMillion, 0.0F);
  const std::vector<float> normal = testing::normal_values(kMillion, 1);
  const std::vector<float> sparse = testing::sparse_values(kMillion, 0.005, 2);
  EXPECT_EQ(coded_bytes("3lc:runs=off", normal), 200000 + kChunks);
  EXPECT_EQ(coded_bytes("3lc:runs=off", zeros), 200000 + kChunks);
  EXPECT_EQ(coded_bytes("3lc:mode=paper", zeros), 24 * 587 + 1 + 243U);
  EXPECT_EQ(coded_bytes("3lc", zeros), 4 * kChunks);
  EXPECT_LE(coded_bytes("3lc", sparse), 6500U);
  EXPECT_GT(coded_bytes("3lc:mode=paper", sparse), 2 * coded_bytes("3lc", sparse));
  // The ratio stated for values of a normal distribution: 30 times.
  for (const char* spec : {"3lc", "3lc:s=1.75", "3lc:mode=paper"}) {
    const std::uint64_t bytes = coded_bytes(spec, normal);
    RecordProperty(spec, std::to_string(bytes));
    EXPECT_GE(4 * kMillion, 30 * bytes) << spec;
  }
}

TEST(ThreelcBytes, SectionsSumToThePayload) {
  const auto codec = codec_of("3lc");
  std::vector<float> x(40960 * 3, 0.0F);
  for (std::size_t i = 0; i < 40960 + 2000; ++i) x[i] = 5;  // a full chunk; a block, then one long run
  for (std::size_t i = 82000; i < x.size(); i += 500) x[i] = -5;
  const auto part = *testing::encode(*codec, x);
  std::vector<Section> sections;
  ASSERT_TRUE(codec->describe(part.view(), x.size(), sections));
  std::uint64_t bits = 0;
  std::string names;
  for (const Section& section : sections) {
    bits += section.bits;
    names += std::string(section.name) + "; ";
    EXPECT_TRUE(section.name != "rice signs" || section.bits == 82) << section.bits;
  }
  EXPECT_EQ(bits, part.payload.size() * 8);
  EXPECT_EQ(names.find("mode bytes; base-3^5; zero runs; rice headers; rice positions; rice signs; "), 0U)
      << names;
}

}  // namespace
}  // namespace deltawire::threelc_bytes_test
