#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "base/little_endian.h"
#include "base/refusal_testing.h"
#include "codecs/codec_testing.h"
#include "codecs/dispatch.h"
#include "codecs/target_testing.h"

namespace deltawire::randomk_test {
namespace {

using namespace testing;

// What an unbiased value is multiplied with at most: of n elements at least 2/3 k n are sent, and a stratum
// has no more than one element beyond the mean. 0 where nothing is scaled.
double factor(const testing::EncodedValue& value) {
  const std::string spec = value.codec.spec();
  if (spec.find("unbiased=on") == std::string::npos) return 0;
  return 1.5 / std::stod(spec.substr(spec.find("k=") + 2)) + 1;
}

const testing::Expects kExpects{{
    .codec = "randomk",
    .error_bound =
        [](const testing::EncodedValue& value) { return std::fabs(value.x()) * std::fmax(1, factor(value)); },
    // What is left of a scaled value is one rounded subtraction.
    .conservation_bound =
        [](const testing::EncodedValue& value) { return std::fabs(value.x()) * factor(value) * 0x1p-23; },
    .tiny_signs = {1, 0, 0, 0},  // one place of four is drawn, with the stream of these tests the first
    .draws = true,
    .skips_zeros = true,
    .limits = {"randomk:k=0.1%"},
    .refused = {"values=2bit"},
}};

// spec.md, sections 2 and 3, once more and slowly: the places of a part.
std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

std::vector<std::uint64_t> places_of(std::uint32_t seed, std::uint64_t count, std::uint64_t kept) {
  constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15U;
  const std::uint64_t key = mixed(seed + kStep);
  std::vector<std::uint64_t> places;
  for (std::uint64_t i = 0; i < kept; ++i) {
    const std::uint64_t begin = i * count / kept;
    const std::uint64_t end = (i + 1) * count / kept;
    const std::uint64_t drawn = mixed(key + kStep * (i + 1)) >> 32;
    places.push_back(begin + drawn * (end - begin) / (std::uint64_t{1} << 32));
  }
  return places;
}

std::vector<float> rising(std::uint64_t count) {
  std::vector<float> values(count);
  for (std::uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i + 1);
  return values;
}

Encoded encoded(const Codec& codec, std::span<const float> values, std::uint64_t stream,
                std::span<float> residual = {}) {
  return *testing::encode_view(codec, {values.data(), values.size(), DType::kF32}, residual, stream);
}

TEST(Randomk, SendsTheValuesAtTheDrawnPlacesInOrder) {
  for (const auto& [count, kept] : {std::pair{1U, 1U}, {7U, 2U}, {1000U, 300U}, {100003U, 30001U}}) {
    const std::vector<float> values = rising(count);
    const Encoded part = encoded(*codec_of("randomk:k=30%"), values, count);
    ASSERT_EQ(part.payload.size(), 4 * kept);
    EXPECT_EQ(part.chunk_ends.size(), (kept + 16383) / 16384);
    const auto places = places_of(part.scalar, count, kept);
    for (std::uint64_t i = 0; i < kept; ++i) {
      float value = 0;
      std::memcpy(&value, part.payload.data() + 4 * i, 4);
      ASSERT_EQ(value, values[places[i]]) << i;
    }
  }
}

TEST(Randomk, UnbiasedMultipliesWithTheElementsOfTheStratum) {
  const std::vector<float> values(10, 2.0F);  // strata of 3, 3 and 4
  const auto codec = codec_of("randomk:k=30%,unbiased=on");
  EXPECT_FALSE(codec->info().error_feedback);
  const Encoded part = encoded(*codec, values, 3);
  float sent[3];
  std::memcpy(sent, part.payload.data(), sizeof sent);
  EXPECT_EQ(sent[0], 6);
  EXPECT_EQ(sent[1], 6);
  EXPECT_EQ(sent[2], 8);
}

TEST(Randomk, KeepsAResidualUnlessItIsUnbiased) {
  EXPECT_TRUE((*make_codec("randomk"))->info().error_feedback);
  EXPECT_FALSE((*make_codec("randomk:unbiased=on"))->info().error_feedback);
}

TEST(Randomk, AScaledValueBeyondFloat32IsRefusedAndTheResidualStays) {
  const std::vector<float> values(1000, 0x1p122F);
  for (const TargetId target : testing::runnable_targets()) {
    const auto codec = *make_codec("randomk:k=1%,unbiased=on", target);
    std::vector<float> residual(1000, 1.0F);
    testing::expect_refused(testing::encode(*codec, values, residual), ErrorCode::kRange);
    EXPECT_EQ(residual, std::vector<float>(1000, 1.0F));
  }
}

TEST(Randomk, NotFiniteIsFoundWhereNothingIsDrawn) {
  const auto codec = codec_of("randomk:k=0.1%");
  for (std::size_t i = 0; i < 40; ++i) {
    std::vector<float> values(40, 1.0F);
    std::vector<float> residual(40, 0x1p127F);
    values[i] = std::numeric_limits<float>::max();  // Inf with its residual
    const auto part = testing::encode(*codec, values, residual);
    testing::expect_refused(part, ErrorCode::kNotFinite);
    EXPECT_EQ(part.error().message.rfind("element " + std::to_string(i) + " is Inf", 0), 0U)
        << part.error().message;
    EXPECT_EQ(residual, std::vector<float>(40, 0x1p127F));
  }
}

TEST(Randomk, TheFirstValueThatIsNotFiniteIsNamed) {
  const auto codec = codec_of("randomk:k=75%");
  const Encoded part = encoded(*codec, rising(40), 1);
  ASSERT_EQ(part.payload.size(), 30 * sizeof(float));
  for (const std::uint32_t bits : {0x7F800000U, 0xFF800000U, 0x7FC00001U}) {
    for (std::size_t place = 0; place < 30; ++place) {
      Encoded bad = part;
      for (const std::size_t at : {place, std::size_t{29}}) store_le(bad.payload.data() + 4 * at, bits);
      const auto decoded = testing::decode(*codec, bad.view(), 40);
      ASSERT_FALSE(decoded);
      EXPECT_EQ(decoded.error().message.find("randomk: value " + std::to_string(place) + " is not finite"),
                0U)
          << decoded.error().message;
    }
  }
}

// The values as topk codes them, at the same places; the residual keeps what they lose.
TEST(Randomk, ValuesInFewerBits) {
  const auto plain = codec_of("randomk:k=30%");
  for (const std::uint64_t count : {10U, 1000U, 100003U}) {
    const std::vector<float> values = testing::normal_values(count, count);
    const Encoded whole = encoded(*plain, values, 5);
    const std::vector<float> exact = *testing::decode(*plain, whole.view(), count);
    for (const auto& [spec, width] :
         {std::pair{"randomk:k=30%,values=bf16", 2U}, {"randomk:k=30%,values=int8", 1U}}) {
      const auto codec = codec_of(spec);
      std::vector<float> residual(count, 0.0F);
      const Encoded part = encoded(*codec, values, 5, residual);
      EXPECT_EQ(part.payload.size() * 4, whole.payload.size() * width);
      EXPECT_EQ(part.scalar, whole.scalar);
      EXPECT_EQ(part.scalar2 != 0, width == 1);
      const std::vector<float> back = *testing::decode(*codec, part.view(), count);
      const float step = std::bit_cast<float>(part.scalar2);
      for (std::uint64_t i = 0; i < count; ++i) {
        const float bound = width == 1 ? step * 0.50001F : std::fabs(exact[i]) * 0x1p-8F;
        ASSERT_LE(std::fabs(back[i] - exact[i]), bound) << spec << " " << i;
        ASSERT_EQ(residual[i], values[i] - back[i]) << spec << " " << i;
      }
      for (const TargetId target : testing::runnable_targets()) {
        const auto other = *make_codec(spec, target);
        EXPECT_TRUE(testing::same_bits(*testing::decode(*other, part.view(), count), back));
      }
    }
  }
  EXPECT_EQ(codec_of("randomk:values=fp32")->spec(), "randomk:k=0.01,unbiased=off");
  EXPECT_EQ(codec_of("randomk:values=bf16")->spec(), "randomk:k=0.01,unbiased=off,values=bf16");
}

TEST(Randomk, RefusesStepsAndCodesThatNobodyWrites) {
  const auto verdict = [](const char* spec, Encoded part) { return verdict_of(spec, part, 10); };
  const Encoded whole = encoded(*codec_of("randomk:k=30%"), rising(10), 4);
  Encoded stepped = whole;
  stepped.scalar2 = 1;
  EXPECT_EQ(verdict("randomk:k=30%", stepped), ErrorCode::kCorrupt);
  Encoded part = encoded(*codec_of("randomk:k=30%,values=int8"), rising(10), 4);
  EXPECT_EQ(verdict("randomk:k=30%,values=int8", part), kAccepted);
  for (const std::uint32_t step : {0U, 0x7C010204U, 0x80000001U, 0x7F800000U}) {
    Encoded other = part;
    other.scalar2 = step;
    EXPECT_EQ(verdict("randomk:k=30%,values=int8", other), ErrorCode::kCorrupt) << step;
  }
  part.payload[1] = std::byte{0x80};
  EXPECT_EQ(verdict("randomk:k=30%,values=int8", part), ErrorCode::kCorrupt);
}

TEST(Randomk, RefusesWhatNoEncoderWrites) {
  const std::string spec = "randomk:k=30%";
  const Encoded good = encoded(*codec_of(spec), rising(10), 4);
  EXPECT_EQ(verdict_of(spec, good, 10), kAccepted);
  EXPECT_EQ(verdict_of(spec, good, 11), kAccepted);  // 3 of 11, too
  EXPECT_EQ(verdict_of(spec, good, 12), ErrorCode::kTruncated);
  EXPECT_EQ(verdict_of(spec, good, 8), ErrorCode::kCorrupt);
  Encoded cut = good;
  cut.payload.pop_back();
  EXPECT_EQ(verdict_of(spec, cut, 10), ErrorCode::kTruncated);
  cut.chunk_ends[0] = 11;
  EXPECT_EQ(verdict_of(spec, cut, 10), ErrorCode::kTruncated);
  Encoded two = good;
  two.chunk_ends = {8, 12};
  EXPECT_EQ(verdict_of(spec, two, 10), ErrorCode::kCorrupt);
  for (const std::uint32_t bits : {0x7F800000U, 0xFF800000U, 0x7FC00000U}) {
    Encoded infinite = good;
    std::memcpy(infinite.payload.data() + 8, &bits, 4);
    EXPECT_EQ(verdict_of(spec, infinite, 10), ErrorCode::kCorrupt) << bits;
  }
}

}  // namespace
}  // namespace deltawire::randomk_test
