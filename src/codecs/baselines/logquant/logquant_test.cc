// logquant: its bytes by hand and against a slow model, ties and limits, and what a decoder must refuse.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::logquant_test {
namespace {

using namespace testing;

// A value is dropped, or off by a factor of at most the root of 2.
const testing::Expects kExpects{{
    .codec = "logquant",
    .error_bound = [](const testing::EncodedValue& value) { return std::fabs(value.x()); },
    .skips_zeros = true,
    .limits = {"logquant:bits=2"},
    .refused = {"bits=0", "bits=9", "base=3", "base=1.1"},
}};

constexpr std::uint32_t kBias = 299;

TEST(LogquantBytes, TheExampleOfTheSpec) {
  const Encoded part = coded("logquant", {0.75F, -6, 0, 1});
  EXPECT_EQ(part.scalar, 3 + kBias);
  EXPECT_EQ(to_ints(part.payload), (Ints{3, 0x80, 0, 0, 0, 0, 4, 0, 0, 0, 0xEC, 0x03, 0x06}));
  EXPECT_EQ(round_trip("logquant", {0.75F, -6, 0, 1}), (Floats{1, -8, 0, 1}));
}

TEST(LogquantBytes, KeysWhereZerosCostMore) {
  Floats x(1000, 0.0F);
  x[9] = 8;
  x[968] = -0.25F;
  EXPECT_EQ(to_ints(coded("logquant", x).payload), (Ints{2, 0, 9, 0, 0, 0, 200, 3, 0, 0, 0x4F, 0x03}));
}

// One pair never pays for a head of 8 bytes; of two the distance decides: 8 + ceil(5 e / 8) <= 8 + 2.
TEST(LogquantBytes, ZerosWhereTheyAreNotLonger) {
  const auto is_dense = [](std::size_t elements) {
    Floats x(elements, 0.0F);
    x.front() = x.back() = 1;
    return to_ints(coded("logquant", x).payload)[1] == 0x80;
  };
  EXPECT_FALSE(is_dense(1));
  EXPECT_TRUE(is_dense(2));
  EXPECT_TRUE(is_dense(3));
  EXPECT_FALSE(is_dense(4));
}

TEST(LogquantBytes, NothingIsTheCountAlone) {
  const Encoded part = coded("logquant", {0, -0.0F, 0});
  EXPECT_EQ(to_ints(part.payload), (Ints{0, 0}));
  EXPECT_EQ(part.scalar, 0U);
  EXPECT_TRUE(coded("logquant", {}).payload.empty());
}

TEST(LogquantBytes, ChunksOf16384Pairs) {
  Floats x(2 * 16384 + 5, 1.0F);
  x[7] = 0;
  const Encoded part = coded("logquant:bits=1", x);
  ASSERT_EQ(part.chunk_ends.size(), 3U);
  EXPECT_EQ(part.chunk_ends[0], 10U + 16385 * 2 / 8 + 1);
  EXPECT_EQ(part.payload[part.chunk_ends[0] + 2], std::byte{1});  // key 16385
  EXPECT_EQ(part.payload[part.chunk_ends[1]], std::byte{4});
}

// The model computes in long double, far from where its own rounding could matter.
struct Model {
  int bits;
  int steps;

  int step(float x) const {
    return static_cast<int>(std::lround(std::log2(std::fabs(static_cast<long double>(x))) * steps));
  }
  float value(int h) const { return static_cast<float>(std::exp2(static_cast<long double>(h) / steps)); }

  Floats seen(const Floats& values) const {
    float largest = 0;
    for (const float x : values) largest = std::max(largest, std::fabs(x));
    Floats result;
    for (const float x : values) {
      const int top = largest > 0 ? std::min(step(largest), steps == 1 ? 127 : 255) : 0;
      const int h = x == 0 ? std::numeric_limits<int>::min() : std::min(step(x), top);
      const float magnitude = h <= top - (1 << bits) + 1 ? 0.0F : value(h);
      result.push_back(x == 0 || h < top - (1 << bits) + 2 ? 0.0F : std::copysign(magnitude, x));
    }
    return result;
  }
};

TEST(LogquantValues, AreTheSlowModels) {
  CounterRng random(7);
  for (int round = 0; round < 300; ++round) {
    const Model model{static_cast<int>(1 + random.next() % 8), static_cast<int>(1 + random.next() % 2)};
    const double spread = random.next_uniform() * 40;
    const double unit = -140 + 250 * random.next_uniform();
    Floats values(1 + random.next() % 200);
    for (float& x : values) {
      if (random.next() % 4 == 0) continue;
      x = static_cast<float>(std::exp2(unit + spread * (random.next_uniform() - 1)));
      if (random.next() % 2 == 0) x = -x;
    }
    const std::string spec =
        "logquant:bits=" + std::to_string(model.bits) + ",base=" + (model.steps == 1 ? "2" : "sqrt2");
    ASSERT_EQ(round_trip(spec, values), model.seen(values)) << spec << " round " << round;
  }
}

// The float32 on either side of each border between two steps, in all octaves.
TEST(LogquantValues, BordersAreTheRootsOfTwo) {
  for (int e = -126; e < 126; ++e) {
    const float low = std::ldexp(std::bit_cast<float>(0x3FB504F3U), e);
    const float high = std::nextafter(low, kMax);
    EXPECT_EQ(round_trip("logquant", {low})[0], std::ldexp(1.0F, e));
    EXPECT_EQ(round_trip("logquant", {high})[0], std::ldexp(1.0F, e + 1));
  }
  const float root = std::bit_cast<float>(0x3FB504F3U);
  const float quarter = std::bit_cast<float>(0x3F9837F0U);
  const float three_quarters = std::bit_cast<float>(0x3FD744FCU);
  const auto coded = [](float x) { return round_trip("logquant:base=sqrt2", {x})[0]; };
  EXPECT_EQ(coded(quarter), 1);
  EXPECT_EQ(coded(std::nextafter(quarter, 2.0F)), root);
  EXPECT_EQ(coded(three_quarters), root);
  EXPECT_EQ(coded(std::nextafter(three_quarters, 2.0F)), 2);
}

TEST(LogquantValues, SubnormalsHaveSteps) {
  const Floats x = {kTiniest, -2 * kTiniest, 3 * kTiniest, 5 * kTiniest, 6 * kTiniest};
  EXPECT_EQ(round_trip("logquant", x),
            (Floats{kTiniest, -2 * kTiniest, 4 * kTiniest, 4 * kTiniest, 8 * kTiniest}));
  EXPECT_EQ(round_trip("logquant:base=sqrt2", x),
            (Floats{kTiniest, -2 * kTiniest, 3 * kTiniest, 6 * kTiniest, 6 * kTiniest}));
}

TEST(LogquantValues, TheLargestStaysFinite) {
  EXPECT_EQ(round_trip("logquant", {-kMax}), Floats{-0x1p127F});
  EXPECT_EQ(round_trip("logquant:base=sqrt2", {kMax})[0], std::bit_cast<float>(0x7F3504F3U));
  EXPECT_EQ(coded("logquant", {kMax}).scalar, 127 + kBias);
  EXPECT_EQ(coded("logquant:base=sqrt2", {kMax}).scalar, 255 + kBias);
}

TEST(LogquantValues, TheLowestLevelIsInclusive) {
  EXPECT_EQ(round_trip("logquant:bits=2", {8, 4, -2, 1}), (Floats{8, 4, -2, 0}));
  EXPECT_EQ(round_trip("logquant:bits=1", {-8, 4}), (Floats{-8, 0}));
}

ErrorCode verdict(Ints bytes, int step = 3, std::string_view spec = "logquant") {
  return testing::verdict_of(spec, one_chunk(std::move(bytes), static_cast<std::uint32_t>(step) + kBias),
                             1000);
}

const Ints kKeyed = {2, 0, 9, 0, 0, 0, 200, 3, 0, 0, 0x4F, 0x03};
const Ints kDense = {3, 0x80, 0, 0, 0, 0, 4, 0, 0, 0, 0xEC, 0x03, 0x06};

Ints with(Ints bytes, std::size_t at, int value) {
  bytes[at] = value;
  return bytes;
}

TEST(LogquantRefusals, Lengths) {
  for (const Ints& good : {kKeyed, kDense}) {
    EXPECT_EQ(verdict(good), kAccepted);
    for (std::size_t bytes = 1; bytes < good.size(); ++bytes) {
      EXPECT_EQ(verdict(Ints(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(bytes))),
                ErrorCode::kTruncated)
          << bytes;
    }
    Ints longer = good;
    longer.push_back(0);
    EXPECT_EQ(verdict(longer), ErrorCode::kCorrupt);
  }
}

TEST(LogquantRefusals, Counts) {
  EXPECT_EQ(verdict(with(kKeyed, 1, 64)), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(with(kDense, 11, 0x33)), ErrorCode::kCorrupt) << "a non-zero too many";
  EXPECT_EQ(verdict(with(kDense, 0, 4)), ErrorCode::kCorrupt) << "a non-zero too few";
  EXPECT_EQ(verdict(with(kDense, 6, 2)), ErrorCode::kCorrupt) << "fewer elements than pairs";
  EXPECT_EQ(verdict({0, 0}, -299), kAccepted);
  EXPECT_EQ(verdict({0, 0, 0}, -299), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 0x80}, -299), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({3, 0x80, 0, 0, 0, 0, 255, 255, 255, 255, 0xEC, 0x03, 0x06}), ErrorCode::kCorrupt)
      << "more elements than there are bytes";
}

TEST(LogquantRefusals, MoreElementsThanKeysCanName) {
  std::vector<Section> sections;
  const Encoded none = one_chunk({0, 0}, 0);
  EXPECT_TRUE(codec_of("logquant")->describe(none.view(), 0xFFFFFFFF, sections));
  EXPECT_FALSE(codec_of("logquant")->describe(none.view(), std::uint64_t{1} << 32, sections));
}

TEST(LogquantRefusals, Keys) {
  EXPECT_EQ(verdict(with(with(kKeyed, 6, 231), 7, 3)), kAccepted) << "key 999";
  EXPECT_EQ(verdict(with(with(kKeyed, 6, 232), 7, 3)), ErrorCode::kCorrupt) << "key 1000";
  EXPECT_EQ(verdict(with(with(kKeyed, 6, 9), 7, 0)), ErrorCode::kCorrupt) << "key 9 twice";
  EXPECT_EQ(verdict(with(with(kDense, 2, 228), 3, 3)), kAccepted) << "keys 996 to 999";
  EXPECT_EQ(verdict(with(with(kDense, 2, 229), 3, 3)), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({3, 0x80, 255, 255, 255, 255, 4, 0, 0, 0, 0xEC, 0x03, 0x06}), ErrorCode::kCorrupt)
      << "keys must not wrap";
}

TEST(LogquantRefusals, Numbers) {
  EXPECT_EQ(verdict(with(kKeyed, 11, 7)), ErrorCode::kCorrupt) << "a set pad";
  EXPECT_EQ(verdict(with(kKeyed, 10, 0x40)), ErrorCode::kCorrupt) << "a zero among keys";
  EXPECT_EQ(verdict(with(kDense, 11, 0x43)), ErrorCode::kCorrupt) << "a negative zero";
  EXPECT_EQ(verdict(with(with(kDense, 10, 0xE0), 11, 0x33)), ErrorCode::kCorrupt) << "a zero first";
  EXPECT_EQ(verdict(with(with(kDense, 11, 0x33), 12, 0)), ErrorCode::kCorrupt) << "a zero last";
  EXPECT_EQ(verdict({1, 0, 9, 0, 0, 0, 15}, -149), kAccepted);
  EXPECT_EQ(verdict({1, 0, 9, 0, 0, 0, 14}, -149), ErrorCode::kCorrupt) << "2^-150";
  EXPECT_EQ(verdict({1, 0, 9, 0, 0, 0, 14}, -297, "logquant:base=sqrt2"), kAccepted);
  EXPECT_EQ(verdict({1, 0, 9, 0, 0, 0, 14}, -298, "logquant:base=sqrt2"), ErrorCode::kCorrupt);
}

TEST(LogquantRefusals, TheFormThatIsLonger) {
  EXPECT_EQ(verdict({3, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0xEF, 0x3D}), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 0x80, 9, 0, 0, 0, 1, 0, 0, 0, 15}), ErrorCode::kCorrupt);
}

TEST(LogquantRefusals, Tops) {
  EXPECT_EQ(verdict(kKeyed, 127), kAccepted);
  EXPECT_EQ(verdict(kKeyed, 128), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({1, 0, 9, 0, 0, 0, 15}, -150), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(kKeyed, 255, "logquant:base=sqrt2"), kAccepted);
  EXPECT_EQ(verdict(kKeyed, 256, "logquant:base=sqrt2"), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(kKeyed, -299), ErrorCode::kCorrupt) << "pairs without a top";
  EXPECT_EQ(verdict({0, 0}), ErrorCode::kCorrupt) << "a top without pairs";
  EXPECT_EQ(verdict(kKeyed, -300), ErrorCode::kCorrupt) << "a number beyond all";
}

}  // namespace
}  // namespace deltawire::logquant_test
