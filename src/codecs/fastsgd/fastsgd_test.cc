// What fastsgd does to values: thresholds, bounds, the share that is kept; and what it refuses, bytes by each
// rule of spec.md once.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/refusal_testing.h"
#include "codecs/codec_testing.h"
#include "codecs/dispatch.h"
#include "codecs/target_testing.h"

namespace deltawire::fastsgd_test {
namespace {

using namespace testing;
using Ints = std::vector<int>;

// A value is dropped, or coded as the next of sum / b^L below it, so that it is off by less than 1 - 1/b of
// itself. Which ones are dropped is tested below.
const testing::Expects kExpects{{
    .codec = "fastsgd",
    .error_bound = [](const testing::EncodedValue& value) { return std::fabs(value.x()); },
    .skips_zeros = true,
    .limits = {"fastsgd:b=1.02,tau=2047,l=1"},
    .refused = {"b=1", "b=2.0000003", "b=nan", "tau=0", "tau=2048", "tau=1.5", "tau=", "keep=0", "keep=100%",
                "l=0", "l=6", "residual=yes", "keys=golomb"},
}};

constexpr float kLargest = std::numeric_limits<float>::max();

std::vector<float> there_and_back(std::string_view spec, const std::vector<float>& values) {
  const auto codec = codec_of(spec);
  const auto part = testing::encode(*codec, values);
  if (!part) throw std::runtime_error(part.error().message);
  return *testing::decode(*codec, part->view(), values.size());
}

Error error_of(std::string_view spec, const std::vector<float>& values) {
  const auto part = testing::encode(*codec_of(spec), values);
  return part ? Error{} : part.error();
}

TEST(Fastsgd, TauIsInclusive) {
  const std::vector<float> x = {8, 4, -2, 1, 1};  // L = 1, 2, 3, 4, 4
  EXPECT_EQ(there_and_back("fastsgd:b=2,tau=4", x), x);
  EXPECT_EQ(there_and_back("fastsgd:b=2,tau=3", x), (std::vector<float>{8, 4, -2, 0, 0}));
  EXPECT_EQ(there_and_back("fastsgd:b=2,tau=1", x), (std::vector<float>{8, 0, 0, 0, 0}));
}

TEST(Fastsgd, SumBeyondFloat32IsRange) {
  EXPECT_EQ(there_and_back("fastsgd", {-kLargest}), (std::vector<float>{-kLargest}));
  const Error error = error_of("fastsgd", {kLargest, -kLargest});
  EXPECT_EQ(error.code, ErrorCode::kRange);
  EXPECT_NE(error.message.find("scale the tensor down"), std::string::npos) << error.message;
}

TEST(Fastsgd, ASumOfZeroLeavesNothingBehind) {
  std::vector<float> residual = {-1, 5};
  const std::vector<float> in = {1, -5};
  ASSERT_TRUE(testing::encode(*codec_of("fastsgd"), in, residual));
  EXPECT_TRUE(same_bits(residual, std::vector<float>{0, 0}));
}

TEST(Fastsgd, ResidualOnAsksForErrorFeedback) {
  EXPECT_FALSE(codec_of("fastsgd")->info().error_feedback);
  EXPECT_TRUE(codec_of("fastsgd:residual=on")->info().error_feedback);
  EXPECT_EQ(codec_of("fastsgd:residual=on")->info().id, 6);
}

TEST(Fastsgd, Specs) {
  EXPECT_EQ(codec_of("fastsgd")->spec(), "fastsgd:b=1.1,tau=auto,keep=0.25,l=2,residual=off");
  EXPECT_EQ(codec_of("fastsgd:tau=128")->spec(), "fastsgd:b=1.1,tau=128,keep=0.25,l=2,residual=off");
  EXPECT_EQ(codec_of("fastsgd:keep=0.5%,l=5,residual=on,tau=auto")->spec(),
            "fastsgd:b=1.1,tau=auto,keep=0.005,l=5,residual=on");
  EXPECT_EQ(make_codec("fastsgd:tau=0").error().message,
            "fastsgd: tau=0 is out of range: give auto or a whole number 1 to 2047");
}

// Decodes under b = 2, tau = 20, l = 2 with sum 8, from memory of exactly the bytes' size.
Status decoded(const Encoded& part, std::uint64_t count = 1000) {
  const auto back = testing::decode(*codec_of("fastsgd:b=2,tau=20"), part.view(), count);
  if (!back) return tl::unexpected<Error>(back.error());
  return {};
}

Status decoded(Ints bytes, std::uint64_t count = 1000, float sum = 8) {
  return decoded(one_chunk(std::move(bytes), bits_of(sum)), count);
}

void expect(const Status& status, ErrorCode code, std::string_view text) {
  ASSERT_FALSE(status) << "accepted; expected " << text;
  EXPECT_EQ(status.error().code, code) << status.error().message;
  EXPECT_NE(status.error().message.find(text), std::string::npos) << status.error().message;
}

// FastsgdBytes.PaperFigure3: keys 343, 575, 578.
const Ints kGood = {3, 0, 0x01, 0x08, 8, 343 & 255, 343 >> 8, 0, 0, 28, 0b0011, 231, 2};

Ints with(Ints bytes, std::size_t at, int value) {
  bytes[at] = value;
  return bytes;
}

Ints cut(const Ints& bytes, std::size_t count) {
  return Ints(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
}

TEST(FastsgdRefusals, TheGoodChunkIsAccepted) {
  EXPECT_TRUE(decoded(kGood));
  EXPECT_TRUE(decoded(kGood, 579)) << "the last key is 578";
}

TEST(FastsgdRefusals, Truncations) {
  for (const std::size_t bytes : {1U, 8U, 9U, 10U, 11U, 12U}) {
    expect(decoded(cut(kGood, bytes)), ErrorCode::kTruncated, "end before the chunk does");
  }
}

TEST(FastsgdRefusals, PairCounts) {
  expect(decoded(with(with(kGood, 0, 1), 1, 0x40)), ErrorCode::kCorrupt, "number of pairs");  // 16385
  expect(decoded(kGood, 2), ErrorCode::kCorrupt, "3 pairs in 1 chunks for 2 elements");
  expect(decoded({0, 0, 0}), ErrorCode::kCorrupt, "bytes follow a chunk without pairs");
}

// A missing last byte is called missing, whatever it held.
TEST(FastsgdRefusals, AMissingLastByteIsTruncated) {
  const auto codec = codec_of("fastsgd:b=2,tau=20");
  for (std::size_t count = 3; count < 40; ++count) {
    std::vector<float> values(1000, 0.0F);
    for (std::size_t i = 0; i < count; ++i) values[i * i % 1000] = static_cast<float>(1 + i % 5);
    Encoded part = *testing::encode(*codec, values);
    ASSERT_TRUE(decoded(part));
    part.payload.pop_back();
    --part.chunk_ends[0];
    testing::expect_refused(decoded(part), ErrorCode::kTruncated);
  }
}

TEST(FastsgdRefusals, Heads) {
  expect(decoded(with(kGood, 3, 0x61)), ErrorCode::kCorrupt, "code bits");  // 12 bits
  expect(decoded(with(kGood, 4, 33)), ErrorCode::kCorrupt, "key bits");
  expect(decoded(with(kGood, 3, 0x80)), ErrorCode::kCorrupt, "code bits");  // 16 bits
}

TEST(FastsgdRefusals, Codes) {
  EXPECT_TRUE(decoded({1, 0, 20, 0, 0, 0, 0, 0, 0, 0}));
  expect(decoded({1, 0, 21, 0, 0, 0, 0, 0, 0, 0}), ErrorCode::kCorrupt, "beyond the threshold");
  // sum / 2^3 of the smallest float is 0.
  expect(decoded({1, 0, 3, 0, 0, 0, 0, 0, 0, 0}, 1000, 0x1p-149F), ErrorCode::kCorrupt,
         "beyond the threshold");
  expect(decoded({1, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1000, 0), ErrorCode::kCorrupt, "beyond the threshold");
  expect(decoded(with(kGood, 9, 0b00'11'11'01)), ErrorCode::kCorrupt, "range");  // no code 0
  expect(decoded(with(kGood, 9, 0b00'00'10'00)), ErrorCode::kCorrupt, "range");  // none needs the bit
  expect(decoded(with(kGood, 9, 28 | 0x40)), ErrorCode::kCorrupt, "bits follow");
  expect(decoded(with(kGood, 9, 28 | 0x80)), ErrorCode::kCorrupt, "bits follow");
}

TEST(FastsgdRefusals, Gaps) {
  // The last gap, 2, with flag 01 and 4 bits.
  const Ints bytes = with(kGood, 10, 0b01'11);
  expect(decoded(bytes), ErrorCode::kCorrupt, "flag that isn't the smallest");
  // The largest gap of 2 bits, 3, with the flag of 4 bits; and the smallest of 4 bits that needs it.
  expect(decoded(with(bytes, 12, 3)), ErrorCode::kCorrupt, "flag that isn't the smallest");
  EXPECT_TRUE(decoded(with(bytes, 12, 4)));
  expect(decoded(with(kGood, 12, 2 | 0x40)), ErrorCode::kCorrupt, "bits follow");
  expect(decoded(with(kGood, 10, 0b0011 | 0x10)), ErrorCode::kCorrupt, "bits follow");
  Ints more = kGood;
  more.push_back(0);
  expect(decoded(more), ErrorCode::kCorrupt, "bits follow");
  // 8 key bits, but the gaps are 2 and 2 in 2 bits each.
  expect(decoded({3, 0, 0x01, 0x08, 8, 0, 0, 0, 0, 28, 0, 0b1010}), ErrorCode::kCorrupt, "no gap is as long");
  EXPECT_TRUE(decoded({2, 0, 1, 0, 0, 0, 0, 0, 0, 0}));
  expect(decoded({2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0}), ErrorCode::kCorrupt, "bits follow");
}

TEST(FastsgdRefusals, KeysOutside) {
  expect(decoded(kGood, 578), ErrorCode::kCorrupt, "outside the tensor");
  expect(decoded({1, 0, 1, 0, 0, 0xE8, 3, 0, 0, 0}), ErrorCode::kCorrupt, "outside the tensor");  // key 1000
  // A gap of 2^32 - 1 must not wrap around to a key that exists.
  expect(decoded({2, 0, 1, 0, 32, 5, 0, 0, 0, 0, 3, 0xFF, 0xFF, 0xFF, 0xFF}), ErrorCode::kCorrupt,
         "outside the tensor");
}

TEST(FastsgdRefusals, Scalars) {
  for (const float sum :
       {-8.0F, -0.0F, std::bit_cast<float>(0x7F800000U), std::bit_cast<float>(0x7FC00000U)}) {
    expect(decoded(kGood, 1000, sum), ErrorCode::kCorrupt, "not a finite number >= 0");
  }
}

// Keys as positions: the same pairs in chunks of their own form.
const Ints kGolomb = {0x01, 0x08, 6, 3, 0, 343 & 255, 343 >> 8, 0, 0, 0x77, 0x12, 0x00, 28};
const Ints kBetween = {0x01, 0x08, 31, 3, 0, 343 & 255, 343 >> 8, 0, 0, 578 & 255, 578 >> 8, 0, 0, 0xC9, 28};

Status listed(const Encoded& part, std::uint64_t count = 1000) {
  const auto back = testing::decode(*codec_of("fastsgd:b=2,tau=20,keys=auto"), part.view(), count);
  if (!back) return tl::unexpected<Error>(back.error());
  return {};
}

Status listed(Ints bytes, std::uint64_t count = 1000) {
  return listed(one_chunk(std::move(bytes), bits_of(8.0F)), count);
}

TEST(FastsgdRefusals, GoodChunksWithoutFlagsAreAccepted) {
  for (const Ints& good : {kGolomb, kBetween}) {
    EXPECT_TRUE(listed(good));
    EXPECT_TRUE(listed(good, 579)) << "the last key is 578";
    expect(listed(good, 578), ErrorCode::kCorrupt, "a position outside the part");
    for (std::size_t bytes = 1; bytes < good.size(); ++bytes) EXPECT_FALSE(listed(cut(good, bytes))) << bytes;
  }
  EXPECT_TRUE(listed({0, 0, 0, 0, 0}));
}

TEST(FastsgdRefusals, HeadsWithoutFlags) {
  expect(listed({0, 0, 0, 0}), ErrorCode::kTruncated, "end before the chunk does");
  expect(listed({1, 8, 6, 3, 0}), ErrorCode::kTruncated, "end before the chunk does");
  expect(listed({0, 0, 0, 0, 0, 0}), ErrorCode::kCorrupt, "bytes follow an empty chunk");
  expect(listed({1, 0, 0, 0, 0}), ErrorCode::kCorrupt, "code bits");
  expect(listed({0, 0, 6, 0, 0}), ErrorCode::kCorrupt, "a code for gaps where there are none");
  expect(listed(with(kGolomb, 1, 0x60)), ErrorCode::kCorrupt, "code bits");                    // 12 bits
  expect(listed(with(with(kGolomb, 3, 1), 4, 0x40)), ErrorCode::kCorrupt, "number of pairs");  // 16385
  expect(listed(kGolomb, 2), ErrorCode::kCorrupt, "3 pairs in 1 chunks for 2 elements");
  expect(listed(with(kGolomb, 2, 25)), ErrorCode::kCorrupt, "Rice parameter above 24");
  expect(listed(with(kGolomb, 2, 6 | 1 << 5)), ErrorCode::kCorrupt, "lanes other than");
}

// What is beyond the end decides nothing: here it would be 12 code bits, and a position outside the part.
TEST(FastsgdRefusals, CutHeadsWithoutFlags) {
  expect(listed({0, 0x60, 0, 1}), ErrorCode::kTruncated, "end before the chunk does");
  // 32 pairs of two bits each: their values take 8 bytes of 9.
  expect(listed({1, 8, 0, 32, 0, 0xE8, 3, 0, 0}), ErrorCode::kTruncated, "end before the chunk does");
}

TEST(FastsgdRefusals, ValuesOfKeysWithoutFlags) {
  for (const Ints& good : {kGolomb, kBetween}) {
    const std::size_t last = good.size() - 1;
    expect(listed(with(good, last, 0b11'11'01)), ErrorCode::kCorrupt, "range");  // no code 0
    expect(listed(with(good, last, 0b00'10'00)), ErrorCode::kCorrupt, "range");  // none needs the bit
    expect(listed(with(good, last, 28 | 0x40)), ErrorCode::kCorrupt, "bits follow the last code");
    expect(listed(with(good, 0, 20)), ErrorCode::kCorrupt, "beyond the threshold");
  }
  EXPECT_TRUE(listed({20, 0, 0, 1, 0, 0, 0, 0, 0, 0}));
  expect(listed({21, 0, 0, 1, 0, 0, 0, 0, 0, 0}), ErrorCode::kCorrupt, "beyond the threshold");
}

TEST(FastsgdRefusals, ThereIsRoomForAllPairsWithoutFlags) {
  const auto codec = codec_of("fastsgd:b=2,tau=20,keys=auto");
  const Encoded part = one_chunk(kGolomb, bits_of(8.0F));
  float values[3];
  std::uint32_t keys[3];
  EXPECT_TRUE(codec->decode_pairs(part.view(), {values, 3, DType::kF32, keys, 1000}, 1));
  testing::expect_refused(codec->decode_pairs(part.view(), {values, 2, DType::kF32, keys, 1000}, 1),
                          ErrorCode::kOutputTooSmall);
}

TEST(FastsgdRefusals, RoomIsWhatChunksBeforeHaveLeft) {
  const auto codec = codec_of("fastsgd:b=2,tau=20,keys=auto");
  const Encoded part = *testing::encode(*codec, std::vector<float>(16385, 1.0F));
  std::vector<float> values(16385, -5.0F);
  std::vector<std::uint32_t> keys(16385, 7);
  testing::expect_refused(
      codec->decode_pairs(part.view(), {values.data(), 16384, DType::kF32, keys.data(), 16385}, 1),
      ErrorCode::kOutputTooSmall);
  EXPECT_EQ(values.back(), -5.0F);
  EXPECT_EQ(keys.back(), 7U);
}

// What is found wrong when all values are read: that nothing lies behind the pairs is as true then.
TEST(FastsgdRefusals, WrongValuesWithoutFlagsStayInTheirRoom) {
  for (const TargetId target : testing::runnable_targets()) {
    const auto codec = *make_codec("fastsgd:b=2,tau=20,keys=auto", target);
    const Encoded part = one_chunk(with(kGolomb, kGolomb.size() - 1, 28 | 0x40), bits_of(8.0F));
    float values[6] = {0, 0, 0, -5, -5, -5};
    std::uint32_t keys[6] = {0, 0, 0, 7, 7, 7};
    EXPECT_FALSE(codec->decode_pairs(part.view(), {values, 3, DType::kF32, keys, 1000}, 1));
    for (const std::size_t i : {3U, 4U, 5U}) {
      EXPECT_EQ(values[i], -5.0F);
      EXPECT_EQ(keys[i], 7U);
    }
  }
}

TEST(FastsgdRefusals, OtherParametersReadOtherBytes) {
  const Encoded part = one_chunk(kGood, bits_of(8.0F));
  EXPECT_FALSE(testing::decode(*codec_of("fastsgd:b=2,tau=1"), part.view(), 1000)) << "L = 2 is beyond tau";
  EXPECT_FALSE(testing::decode(*codec_of("fastsgd:b=2,l=3"), part.view(), 1000));
  expect(listed(part), ErrorCode::kTruncated, "end before the chunk does");
  expect(decoded(kGolomb), ErrorCode::kCorrupt, "2049 pairs in 1 chunks for 1000 elements");
}

}  // namespace
}  // namespace deltawire::fastsgd_test
