// What 3lc means: quantization, residuals, errors; its bytes, and how many they are; and every form that a
// decoder must refuse, in both ways of decoding and in describe.
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/float_environment.h"
#include "base/property_testing.h"
#include "codecs/codec_testing.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc_test {
namespace {

using namespace testing;
using Ints = std::vector<int>;

// Values in {-m, 0, m}; the scalar is m.
const testing::Expects kExpects{{
    .codec = "3lc",
    .error_bound =
        [](const testing::EncodedValue& value) {
          return std::max(value.scalar() / 2, value.largest - value.scalar());
        },
    .skips_zeros = true,
    .limits = {"3lc:s=1.9999,mode=auto", "3lc:s=0.5", "3lc:s=0.7,pull=1.5"},
}};

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> round_trip(std::string_view spec, const std::vector<float>& values) {
  const auto codec = codec_of(spec);
  const auto part = testing::encode(*codec, values);
  return *testing::decode(*codec, part->view(), values.size());
}

// The smallest m above 2^-126 that is odd has no half among the floats: the bound is the next one up.
TEST(Threelc, HalfOfAnOddScaleIsRoundedUp) {
  const auto float_of = [](std::uint32_t bits) { return std::bit_cast<float>(bits); };
  const auto back = round_trip("3lc", {float_of(0x00800001), float_of(0x00400000), float_of(0x00400001)});
  EXPECT_EQ(bits_of(back[0]), 0x00800001U);
  EXPECT_EQ(bits_of(back[1]), 0U) << "below m / 2";
  EXPECT_EQ(bits_of(back[2]), 0x00800001U) << "above it";
}

Error encode_error(std::string_view spec, const std::vector<float>& values,
                   std::vector<float> residual = {}) {
  const std::vector<float> before = residual;
  const auto part = testing::encode(*codec_of(spec), values, residual);
  EXPECT_FALSE(part);
  EXPECT_TRUE(testing::same_bits(before, residual)) << "residual";
  return part ? Error{} : part.error();
}

TEST(Threelc, TiesAtHalfOfMGoAwayFromZero) {
  const float below = std::nextafter(0.5F, 0.0F);
  EXPECT_EQ(round_trip("3lc", {1, 0.5F, -0.5F, below, -below}), (std::vector<float>{1, 1, -1, 0, 0}));
  // m = 1.75: half is 0.875
  EXPECT_EQ(round_trip("3lc:s=1.75", {1, 0.875F, 0.874F, -0.875F}),
            (std::vector<float>{1.75F, 1.75F, 0, -1.75F}));
}

// An s below 1 sends less than the largest value, whose rest comes in the steps after.
TEST(Threelc, ASmallSLeavesTheRestOfLargeValues) {
  const auto codec = codec_of("3lc:s=0.5");
  std::vector<float> residual = {0, 0, 0, 0};
  const std::vector<float> values = {1, -0.75F, 0.25F, 0.125F};
  const auto first = testing::encode(*codec, values, residual);
  EXPECT_EQ(*testing::decode(*codec, first->view(), 4), (std::vector<float>{0.5F, -0.5F, 0.5F, 0}));
  EXPECT_EQ(residual, (std::vector<float>{0.5F, -0.25F, -0.25F, 0.125F}));
}

// m = 2^-149 / 2 is rounded to even, which is 0; then nothing is sent.
TEST(Threelc, ASmallSKeepsTheLeastSubnormal) {
  std::vector<float> residual = {0};
  const auto part = testing::encode(*codec_of("3lc:s=0.5"), std::vector<float>{0x1p-149F}, residual);
  EXPECT_EQ(part->scalar, 0U);
  EXPECT_EQ(residual, std::vector<float>{0x1p-149F});
}

TEST(Threelc, MeansHaveAnSOfTheirOwn) {
  EXPECT_EQ(codec_of("3lc")->mean_spec(), codec_of("3lc")->spec());
  const auto codec = codec_of("3lc:s=1.5,mode=paper,pull=0.5");
  EXPECT_EQ(codec->spec(), "3lc:s=1.5,mode=paper,runs=on,pull=0.5");
  EXPECT_EQ(codec->mean_spec(), "3lc:s=0.5,mode=paper,runs=on");
  EXPECT_EQ(codec->gain(), 6) << "of gradients, which alone are coded at each hop";
  EXPECT_EQ(codec_of("3lc:s=1.5,pull=s")->spec(), "3lc:s=1.5,mode=auto,runs=on");
  EXPECT_EQ(codec_of("3lc:s=1.5,pull=1.5")->spec(), "3lc:s=1.5,mode=auto,runs=on,pull=1.5");
}

TEST(Threelc, SubnormalsAreValues) {
  const float least = 0x1p-149F;
  EXPECT_EQ(round_trip("3lc", {least, -least, 0}), (std::vector<float>{least, -least, 0}));
  // m of 3 units: half is 1.5 units, which 2 reach and 1 doesn't.
  EXPECT_EQ(round_trip("3lc", {3 * least, 2 * least, least}), (std::vector<float>{3 * least, 3 * least, 0}));
  // The last binade with the spacing of subnormals, odd: half lies between two floats.
  const auto odd = std::bit_cast<float>(0x00FFFFFFU);
  const auto upper = std::bit_cast<float>(0x00800000U);
  const auto lower = std::bit_cast<float>(0x007FFFFFU);
  EXPECT_EQ(round_trip("3lc", {odd, upper, lower}), (std::vector<float>{odd, odd, 0}));
  const auto even = std::bit_cast<float>(0x01000000U);
  EXPECT_EQ(round_trip("3lc", {even, upper, lower}), (std::vector<float>{even, even, 0}));
}

TEST(Threelc, NotFiniteNamesTheFirstElement) {
  const Error input = encode_error("3lc", {0, 1, kNan, kInf}, {0, 1, 2, 3});
  EXPECT_EQ(input.code, ErrorCode::kNotFinite);
  EXPECT_EQ(input.message.rfind("element 2 of the input is NaN", 0), 0U) << input.message;
  EXPECT_EQ(encode_error("3lc", {-kInf}).message.rfind("element 0 of the input is -Inf", 0), 0U);
  const Error sum = encode_error("3lc", {0, 3e38F}, {0, 3e38F});
  EXPECT_EQ(sum.code, ErrorCode::kNotFinite);
  EXPECT_EQ(sum.message.rfind("element 1 is Inf once the residual 3e+38 is added", 0), 0U) << sum.message;
  EXPECT_EQ(encode_error("3lc", {1}, {kNan}).code, ErrorCode::kNotFinite);
}

TEST(Threelc, OverflowOfMIsRefused) {
  EXPECT_EQ(encode_error("3lc:s=1.75", {2e38F, 1}, {0, 5}).code, ErrorCode::kRange);
  EXPECT_EQ(round_trip("3lc", {3.4e38F, 1}), (std::vector<float>{3.4e38F, 0}));
}

// x = q * m + r holds exactly, whatever the values: x - m has no rounding.
PROPERTY(ThreelcProperty, NothingIsLost) {
  const auto bits = testing::drawn_numbers();
  const auto choice = testing::drawn(0, 256);
  std::vector<float> values;
  for (const std::int32_t word : bits) {
    // 0x7E..: below the range in which m could overflow.
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(word) * 2654435761U & 0xFEFFFFFFU);
    values.push_back(std::isfinite(value) && std::fabs(value) < 1e38F ? value : 0.25F);
  }
  const char* specs[] = {"3lc",         "3lc:s=1.75", "3lc:s=1.1,mode=paper",
                         "3lc:s=1.999", "3lc:s=0.5",  "3lc:s=0.7"};
  const auto codec = codec_of(specs[choice % 6]);
  std::vector<float> residual(values.size(), 0.0F);
  const auto part = testing::encode(*codec, values, residual);
  HOLDS(part.has_value());
  const auto back = *testing::decode(*codec, part->view(), values.size());
  const double m = std::bit_cast<float>(part->scalar);
  const double most = std::max(m / 2, testing::largest_magnitude(values) - m);
  for (std::size_t i = 0; i < values.size(); ++i) {
    HOLDS(static_cast<double>(back[i]) + static_cast<double>(residual[i]) == static_cast<double>(values[i]));
    HOLDS(std::fabs(residual[i]) <= most);
  }
}

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

ErrorCode verdict(const testing::Encoded& part, std::uint64_t count) {
  return testing::verdict_of("3lc", part, count);
}

ErrorCode verdict(const Ints& bytes, std::uint64_t count, std::uint32_t scalar = bits_of(1.0F)) {
  return verdict(one_chunk(bytes, scalar), count);
}

TEST(ThreelcRefusals, ModeByte) {
  EXPECT_EQ(verdict({0, 121}, 5), kAccepted);
  EXPECT_EQ(verdict({3, 121}, 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({255, 121}, 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0}, 5), ErrorCode::kTruncated);
}

TEST(ThreelcRefusals, Base3) {
  EXPECT_EQ(verdict({0, 242}, 5), kAccepted);
  EXPECT_EQ(verdict({0, 243}, 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 121}, 6), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 121, 121}, 5), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 175}, 3), kAccepted);
  EXPECT_EQ(verdict({0, 171}, 3), ErrorCode::kCorrupt);  // pads of digit 0
  EXPECT_EQ(verdict({0, 176}, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 121, 122}, 6), ErrorCode::kCorrupt);  // stride 2: byte 1 ends in three pads
  EXPECT_EQ(verdict({0, 122, 121}, 6), ErrorCode::kCorrupt);
}

TEST(ThreelcRefusals, ZeroRuns) {
  EXPECT_EQ(verdict({1, 243}, 10), kAccepted);
  EXPECT_EQ(verdict({1, 255, 121}, 75), kAccepted);
  EXPECT_EQ(verdict({1, 255, 255}, 140), kAccepted);
  EXPECT_EQ(verdict({1, 121, 121}, 10), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 121, 243}, 15), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 243, 121}, 15), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 254, 243}, 75), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 121, 255}, 75), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 244}, 10), ErrorCode::kCorrupt);  // past the end
  EXPECT_EQ(verdict({1, 243}, 15), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({1, 243, 202}, 10), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1}, 5), ErrorCode::kTruncated);
}

TEST(ThreelcRefusals, RiceCountsNoMorePositionsThanElements) {
  const auto more = one_chunk({2, 0, 4, 0, 0}, bits_of(1.0F));
  EXPECT_EQ(testing::decode(*codec_of("3lc"), more.view(), 3).error().message,
            "3lc chunk 0: more positions than elements");
  EXPECT_EQ(verdict({2, 0, 3, 0, 0}, 3), kAccepted);
}

// One position: gap g with parameter 0 is g ones and a zero, then the sign.
TEST(ThreelcRefusals, Rice) {
  EXPECT_EQ(verdict({2, 0, 1, 0, 0b00}, 1), kAccepted);
  EXPECT_EQ(verdict({2, 0, 0, 0}, 1), kAccepted);
  EXPECT_EQ(verdict({2, 15, 0, 0}, 1), kAccepted);
  EXPECT_EQ(verdict({2, 16, 0, 0}, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({2, 0, 0}, 1), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({2, 0, 1, 0}, 1), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({2, 0, 2, 0, 0}, 1), ErrorCode::kCorrupt);      // 2 of 1
  EXPECT_EQ(verdict({2, 0, 1, 0, 0b001}, 1), ErrorCode::kCorrupt);  // position 1 of 1
  EXPECT_EQ(verdict({2, 0, 1, 0, 0b001}, 2), kAccepted);
  EXPECT_EQ(verdict({2, 0, 1, 0, 0b100}, 2), ErrorCode::kCorrupt);  // set pad bit
  EXPECT_EQ(verdict({2, 0, 1, 0, 0, 0}, 2), ErrorCode::kCorrupt);   // a byte more
  EXPECT_EQ(verdict({2, 0, 0, 0, 0}, 2), ErrorCode::kCorrupt);
}

TEST(ThreelcRefusals, RiceEscape) {
  // 24 ones, 16 bits of the gap, a sign.
  EXPECT_EQ(verdict({2, 0, 1, 0, 255, 255, 255, 24, 0, 0}, 100), kAccepted);
  EXPECT_EQ(verdict({2, 0, 1, 0, 255, 255, 255, 23, 0, 0}, 100), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({2, 1, 1, 0, 255, 255, 255, 48, 0, 0}, 100), kAccepted);
  EXPECT_EQ(verdict({2, 1, 1, 0, 255, 255, 255, 47, 0, 0}, 100), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({2, 0, 1, 0, 255, 255, 255, 100, 0, 0}, 100), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({2, 0, 1, 0, 255, 255, 255, 24, 0}, 100), ErrorCode::kTruncated);
}

TEST(ThreelcRefusals, ScalarM) {
  EXPECT_EQ(verdict({0, 202}, 5, 1), kAccepted);  // the smallest subnormal
  for (const std::uint32_t bits : {0x80000000U, 0x7F800000U, 0x7FC00000U, 0xBF800000U, 0xFF800000U}) {
    EXPECT_EQ(verdict({0, 121}, 5, bits), ErrorCode::kCorrupt) << bits;
  }
}

TEST(ThreelcRefusals, DigitsWithoutM) {
  EXPECT_EQ(verdict({0, 121}, 5, 0), kAccepted);
  EXPECT_EQ(verdict({1, 243}, 10, 0), kAccepted);
  EXPECT_EQ(verdict({2, 0, 0, 0}, 10, 0), kAccepted);
  EXPECT_EQ(verdict({0, 202}, 5, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 122, 121}, 10, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({2, 0, 1, 0, 0}, 10, 0), ErrorCode::kCorrupt);
}

TEST(ThreelcRefusals, ChunkIndex) {
  testing::Encoded part = one_chunk({0, 121, 0, 121}, 0);
  EXPECT_EQ(verdict(part, 5), ErrorCode::kCorrupt);
  part.chunk_ends = {2, 4};
  EXPECT_EQ(verdict(part, 5), ErrorCode::kCorrupt);  // one chunk too many
  part.chunk_ends = {};
  EXPECT_EQ(verdict(part, 5), ErrorCode::kCorrupt);
  part.chunk_ends = {5};
  EXPECT_EQ(verdict(part, 5), ErrorCode::kTruncated);
  testing::Encoded two = one_chunk({2, 0, 0, 0, 0, 121}, 0);
  two.chunk_ends = {4, 6};
  EXPECT_EQ(verdict(two, 40965), kAccepted);
  for (const std::vector<std::uint32_t>& ends : {std::vector<std::uint32_t>{6, 6}, {0, 6}, {6, 4}, {7, 6}}) {
    two.chunk_ends = ends;
    EXPECT_EQ(verdict(two, 40965), ErrorCode::kCorrupt);
  }
}

TEST(ThreelcRefusals, EmptyPart) {
  EXPECT_EQ(verdict(testing::Encoded{{std::byte{0}}, {}, 0}, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(one_chunk({0, 121}, 0), 0), ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltawire::threelc_test
