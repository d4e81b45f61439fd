// qsgd: its bits, that it is right on average, the paper's variance, an independent model, limits.
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "codecs/codec_testing.h"

namespace deltawire::qsgd_test {
namespace {

using namespace testing;

std::uint32_t number_in(const std::string& spec, const std::string& key) {
  return static_cast<std::uint32_t>(std::stoul(spec.substr(spec.find(key + "=") + key.size() + 1)));
}

// The distance of two levels, norm / s: what a value is off by at most.
double step_of(const testing::EncodedValue& value) {
  const std::string spec = value.codec.spec();
  const std::uint64_t chunk = value.i / 65536;
  const std::uint32_t begin = chunk == 0 ? 0 : value.part.chunk_ends[chunk - 1];
  float norm = 0;
  const std::uint64_t bucket = value.i % 65536 / number_in(spec, "bucket");
  std::memcpy(&norm, value.part.payload.data() + begin + bucket * 4, 4);
  return static_cast<double>(norm) / number_in(spec, "levels");
}

// Levels are rounded to float32; what is left is one rounded subtraction.
const testing::Expects kExpects{{
    .codec = "qsgd",
    .error_bound =
        [](const testing::EncodedValue& value) {
          return step_of(value) + std::fabs(value.x()) * 0x1p-22 + 0x1p-149;
        },
    .conservation_bound =
        [](const testing::EncodedValue& value) {
          return (step_of(value) + std::fabs(value.x()) * 0x1p-22) * 0x1p-23;
        },
    .draws = true,
    .skips_zeros = true,
    .limits = {"qsgd:levels=65535,bucket=65536", "qsgd:levels=65535,bucket=65536,coding=omega"},
    .refused = {"levels=0", "levels=1.5", "levels=65536", "norm=l1", "bucket=100", "bucket=32",
                "coding=delta"},
}};

// google-research/federated@a5af8c4433c9, compressed_communication/aggregators/comparison_methods/
// qsgd_test.py, lines 104 to 118 and 128 to 141: [2, 3, 6] has the norm 7, and with 7 levels is exact, in
// codes of 5, 5 and 7 bits, 24 bits and a norm of 32; [1] and [2] take 5 bits, 8 and 32.
TEST(Qsgd, PublishedVectorsAreExact) {
  for (std::uint64_t stream = 0; stream < 50; ++stream) {
    EXPECT_EQ(round_trip("qsgd:levels=7", {2, 3, 6}, stream), (Floats{2, 3, 6}));
    EXPECT_EQ(round_trip("qsgd:levels=2", {1}, stream), Floats{1});
    EXPECT_EQ(round_trip("qsgd:levels=2", {2}, stream), Floats{2});
  }
  EXPECT_EQ(coded("qsgd:levels=7", {2, 3, 6}).payload.size() * 8, 56U);
  EXPECT_EQ(coded("qsgd:levels=2", {1}).payload.size() * 8, 40U);
  const auto codec = codec_of("qsgd:levels=7");
  const Encoded part = coded("qsgd:levels=7", {2, 3, 6});
  EXPECT_EQ(*testing::decode(*codec, part.view(), 3, Into::kOverwrite, 2), (Floats{4, 6, 12}));
}

// A part of one bucket: the norm's bytes, then the stream's.
Ints part_bytes(float norm, const std::string& bits) {
  Ints bytes(4 + (bits.size() + 7) / 8, 0);
  for (std::size_t i = 0; i < 4; ++i) bytes[i] = static_cast<int>(bits_of(norm) >> 8 * i & 0xFF);
  for (std::size_t i = 0; i < bits.size(); ++i) bytes[4 + i / 8] |= (bits[i] == '1' ? 1 : 0) << i % 8;
  return bytes;
}

TEST(Qsgd, GapsSignsAndLevelsBitByBit) {
  const std::string of_three = std::string("1") + "0" + "010" + "1" + "0" + "011" + "1" + "1" + "00110";
  EXPECT_EQ(testing::to_ints(coded("qsgd:levels=7", {2, 3, -6}).payload), part_bytes(7, of_three));
  // Gaps of 3 and 1, and of 2 to the end.
  const std::string gamma = std::string("011") + "1" + "1" + "1" + "0" + "1" + "010";
  EXPECT_EQ(testing::to_ints(coded("qsgd:levels=1,norm=max", {0, 0, -5, 5, 0}).payload),
            part_bytes(5, gamma));
  const std::string omega = std::string("110") + "1" + "101110" + "0" + "0" + "101110" + "100";
  EXPECT_EQ(testing::to_ints(coded("qsgd:levels=7,norm=max,coding=omega", {0, 0, -5, 5, 0}).payload),
            part_bytes(5, omega));
}

TEST(Qsgd, BucketsHaveTheirOwnNorms) {
  Floats values(130, 0.0F);
  values[63] = -3;
  values[128] = 0.5F;
  const Encoded part = coded("qsgd:levels=1,bucket=64", values);
  // The first bucket ends with its last element; the second has neither norm nor codes.
  Ints wanted = part_bytes(3, std::string("0000001000000") + "1" + "1" + "1" + "0" + "1" + "010");
  const Ints norms = {0, 0, 0, 0, 0, 0, 0, 0x3F};
  wanted.insert(wanted.begin() + 4, norms.begin(), norms.end());
  EXPECT_EQ(testing::to_ints(part.payload), wanted);
  EXPECT_EQ(*testing::decode(*codec_of("qsgd:levels=1,bucket=64"), part.view(), 130), values);
}

TEST(Qsgd, ZerosAlone) {
  EXPECT_EQ(testing::to_ints(coded("qsgd", {0, -0.0F, 0}).payload), (Ints{0, 0, 0, 0}));
  EXPECT_EQ(round_trip("qsgd", Floats(1000, -0.0F)), Floats(1000, 0.0F));
}

struct Choice {
  std::string spec;
  std::uint32_t levels;
  std::uint64_t bucket;
  bool largest;
};

// spec.md, step 2, once more: a bucket is one block, its lanes one after another.
float model_norm(std::span<const float> bucket, bool largest) {
  std::vector<double> lanes(16, 0.0);
  double most = 0;
  for (std::size_t lane = 0; lane < 16; ++lane) {
    for (std::size_t i = lane; i < bucket.size(); i += 16) {
      lanes[lane] += std::pow(static_cast<double>(bucket[i]), 2);
      most = std::fmax(most, std::fabs(static_cast<double>(bucket[i])));
    }
  }
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return static_cast<float>(largest ? most : std::sqrt(lanes[0]));
}

float model_value(float x, float norm, std::uint32_t levels, std::uint64_t i) {
  if (norm == 0) return 0;
  const std::uint64_t number = CounterRng(3).at(i / 2);
  const double u = (static_cast<double>(i % 2 == 0 ? number & 0xFFFFFFFF : number >> 32) + 0.5) / 0x1p32;
  const double exact = std::fabs(static_cast<double>(x)) * levels / static_cast<double>(norm);
  const double level = std::floor(exact) + (u < exact - std::floor(exact) ? 1 : 0);
  const auto magnitude = static_cast<float>(static_cast<double>(norm) * level / levels);
  return x < 0 ? -magnitude : magnitude;
}

TEST(Qsgd, ValuesAndResidualsAreTheModels) {
  const Choice choices[] = {{"qsgd", 16, 512, false},
                            {"qsgd:levels=1,bucket=64,coding=omega", 1, 64, false},
                            {"qsgd:levels=3,norm=max,bucket=64", 3, 64, true},
                            {"qsgd:levels=65535,bucket=65536,coding=omega", 65535, 65536, false}};
  for (const Choice& choice : choices) {
    for (const std::uint64_t count : {1U, 63U, 65U, 1000U, 65537U, 131072U}) {
      Floats values = testing::normal_values(count, count);
      for (std::size_t i = 0; i < count; ++i) {  // so far apart that sums depend on their order
        values[i] = std::ldexp(values[i], static_cast<int>(i % 57) - 28);
      }
      Floats residual = testing::normal_values(count, count + 1);
      Floats x(count);
      for (std::size_t i = 0; i < count; ++i) x[i] = values[i] + residual[i];
      const auto codec = codec_of(choice.spec);
      const Encoded part = *testing::encode(*codec, values, residual);
      const Floats back = *testing::decode(*codec, part.view(), count);
      for (std::size_t first = 0; first < count; first += choice.bucket) {
        const auto bucket = std::span(x).subspan(first, std::min<std::size_t>(choice.bucket, count - first));
        const float norm = model_norm(bucket, choice.largest);
        for (std::size_t i = first; i < first + bucket.size(); ++i) {
          const float wanted = model_value(x[i], norm, choice.levels, i);
          ASSERT_EQ(back[i], wanted) << choice.spec << " " << i << " of " << count;
          ASSERT_EQ(residual[i], x[i] - wanted) << choice.spec << " " << i << " of " << count;
        }
      }
    }
  }
}

TEST(Qsgd, LargestAndSmallestValues) {
  EXPECT_EQ(round_trip("qsgd", {-kMax}), Floats{-kMax});
  EXPECT_EQ(round_trip("qsgd:norm=max", {kMax, -kMax}), (Floats{kMax, -kMax}));
  EXPECT_EQ(round_trip("qsgd:levels=65535", {0x1p-149F}), Floats{0x1p-149F});
  for (const float value : round_trip("qsgd:levels=3,norm=max", {kMax, kMax / 2, 1})) {
    EXPECT_LE(std::fabs(value), kMax);
  }
}

TEST(Qsgd, ANormBeyondFloat32IsRefusedAndTheResidualStays) {
  for (const bool apart : {false, true}) {
    Floats values(200, 1.0F);
    values[150] = values[151] = kMax;
    Floats residual(200, 1.0F);
    const auto part = testing::encode(*codec_of("qsgd:bucket=64"), values, residual);
    ASSERT_FALSE(part) << apart;
    EXPECT_EQ(part.error().code, ErrorCode::kRange);
    EXPECT_EQ(residual, Floats(200, 1.0F));
  }
  Floats residual(200, 0.0F);
  residual[199] = kMax;
  Floats values(200, kMax);
  EXPECT_EQ(testing::encode(*codec_of("qsgd:bucket=64"), values, residual).error().code,
            ErrorCode::kNotFinite);
}

ErrorCode verdict(const Ints& bytes, std::uint64_t count, const std::string& spec = "qsgd:levels=5") {
  return testing::verdict_of(spec, testing::one_chunk(bytes, 0), count);
}

TEST(QsgdRefusals, Codes) {
  using testing::kAccepted;
  EXPECT_EQ(verdict(part_bytes(1, "1000101"), 1), kAccepted);             // level 5
  EXPECT_EQ(verdict(part_bytes(1, "1000110"), 1), ErrorCode::kCorrupt);   // level 6
  EXPECT_EQ(verdict(part_bytes(1, "00101"), 4), kAccepted);               // straight to the end
  EXPECT_EQ(verdict(part_bytes(1, "00110"), 4), ErrorCode::kCorrupt);     // past it
  EXPECT_EQ(verdict(part_bytes(1, "10100110"), 4), ErrorCode::kCorrupt);  // one past it, behind the first
  EXPECT_EQ(verdict(part_bytes(1,
                               "00100"
                               "0"
                               "1"),
                    4),
            kAccepted);                                                     // the last element
  EXPECT_EQ(verdict(part_bytes(1, "10100000"), 2), ErrorCode::kTruncated);  // a second bit, then none
  EXPECT_EQ(verdict(part_bytes(1,
                               "001000"
                               "11"),
                    4),
            ErrorCode::kCorrupt);  // a bit behind
  EXPECT_EQ(verdict(part_bytes(1,
                               "0010001"
                               "000000000"),
                    4),
            ErrorCode::kCorrupt);  // a byte behind
  EXPECT_EQ(verdict(part_bytes(1, ""), 4), ErrorCode::kTruncated);
  EXPECT_EQ(verdict(part_bytes(1, "00000000"), 4), ErrorCode::kTruncated);
  EXPECT_EQ(verdict(part_bytes(1, std::string(40, '0')), 4), ErrorCode::kCorrupt);  // a gap beyond 2^17
  EXPECT_EQ(verdict(part_bytes(1, std::string(40, '1')), 4, "qsgd:levels=5,coding=omega"),
            ErrorCode::kCorrupt);
}

TEST(QsgdRefusals, Norms) {
  using testing::kAccepted;
  EXPECT_EQ(verdict({0, 0, 0, 0}, 4), kAccepted);
  EXPECT_EQ(verdict({0, 0, 0, 0, 0}, 4), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 0, 0}, 4), ErrorCode::kTruncated);
  EXPECT_EQ(verdict(part_bytes(kMax, "00101"), 4), kAccepted);
  for (const float norm : {-1.0F, -0.0F, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_EQ(verdict(part_bytes(norm, "00101"), 4), ErrorCode::kCorrupt) << norm;
  }
  EXPECT_EQ(verdict({0, 0, 0, 0, 0, 0, 0}, 513), ErrorCode::kTruncated);
  EXPECT_EQ(verdict({0, 0, 0, 0, 0, 0, 0, 0x80}, 513), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict({0, 0, 0, 0, 0, 0, 0, 0}, 513), kAccepted);
}

}  // namespace
}  // namespace deltawire::qsgd_test
