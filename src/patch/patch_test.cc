// What patches promise: every bit comes back, from the right weights alone, in a few bits a change.
#include "deltawire/patch.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "patch/patch_coding.h"
#include "patch/patch_testing.h"

namespace deltawire::patch_test {
namespace {

using namespace testing;

ByteVector patch_of(const WeightPair& pair, WeightType type) {
  auto patch = make_patch(pair.from, pair.to, type);
  EXPECT_TRUE(patch) << patch.error().message;
  return patch ? *patch : ByteVector{};
}

void expect_round_trip(const WeightPair& pair, WeightType type, const std::string& what) {
  const ByteVector patch = patch_of(pair, type);
  ByteVector out(pair.from.size(), std::byte{0x5A});
  const Status applied = apply_patch(patch, pair.from, type, out);
  ASSERT_TRUE(applied) << what << ": " << applied.error().message;
  EXPECT_TRUE(out == pair.to) << what;
  ByteVector weights = pair.from;
  const Status in_place = apply_patch(patch, weights, type, weights);
  ASSERT_TRUE(in_place) << what << ": " << in_place.error().message;
  EXPECT_TRUE(weights == pair.to) << what << ", in place";
  EXPECT_TRUE(verify_patch(patch, pair.from, type)) << what;
  EXPECT_TRUE(inspect_patch(patch)) << what;
}

TEST(Patch, EveryBitComesBack) {
  for (const WeightType type : testing::kWeightTypes) {
    for (const std::uint64_t count : {1U, 63U, 64U, 65U, 1000U}) {
      for (const double share : {0.0, 0.003, 0.1, 0.4, 0.6, 0.97, 1.0}) {
        if (count < 1000 && share != 0.4 && share != 1.0) continue;  // where words end, any share will do
        for (const OldWeights weights :
             {OldWeights::kRandomBits, OldWeights::kBell, OldWeights::kZerosOfBothSigns}) {
          for (const Change change :
               {Change::kOneUnit, Change::kFewUnits, Change::kRandomBits, Change::kSign}) {
            const PairCase wanted{type, count, share, weights, change, count % 2 == 0};
            expect_round_trip(make_pair(wanted, 1), type,
                              std::string(weight_type_name(type)) + " " + std::to_string(count) + " " +
                                  std::to_string(share));
          }
        }
      }
    }
  }
}

TEST(Patch, LongTensorsComeBack) {
  for (const WeightType type : testing::kWeightTypes) {
    for (const std::uint64_t count : {65535U, 65536U, 65537U, 600001U}) {
      for (const double share : {0.003, 0.3}) {
        if (count > 100000 && share > 0.1 && type != WeightType::kBFloat16) continue;
        const PairCase wanted{type, count, share, OldWeights::kBell, Change::kFewUnits, false};
        expect_round_trip(make_pair(wanted, 2), type, std::to_string(count));
      }
    }
  }
}

// Chunks whose decoded changes are kept until all is checked, and chunks for which there is no room.
TEST(Patch, InPlaceNoByteDependsOnWhatIsKept) {
  for (const WeightType type : {WeightType::kFloat8E4M3, WeightType::kBFloat16, WeightType::kFloat32}) {
    const WeightPair pair = make_pair({type, 300000, 0.1, OldWeights::kBell, Change::kFewUnits, false}, 7);
    const ByteVector patch = patch_of(pair, type);
    for (const std::int64_t kept_bytes : {0, 50'000, 1 << 20}) {
      ByteVector weights = pair.from;
      const Status applied =
          patch::apply(patch, {weights, type}, weights, {TargetId::kReference, nullptr, kept_bytes});
      ASSERT_TRUE(applied) << applied.error().message;
      EXPECT_TRUE(weights == pair.to) << weight_type_name(type) << " " << kept_bytes;
    }
  }
}

TEST(Patch, ATensorWithoutElementsHasAPatch) {
  const ByteVector patch = patch_of({}, WeightType::kFloat32);
  EXPECT_EQ(patch.size(), 56U);
  EXPECT_TRUE(apply_patch(patch, {}, WeightType::kFloat32, {}));
  EXPECT_EQ(inspect_patch(patch)->chunks, 0U);
}

TEST(Patch, WithoutChangesItIsItsHeadAndOneRun) {
  const WeightPair pair = make_pair({WeightType::kBFloat16, 200000, 0.0}, 3);
  const ByteVector patch = patch_of(pair, WeightType::kBFloat16);
  EXPECT_EQ(patch.size(), 57U);
  EXPECT_EQ(inspect_patch(patch)->changed_chunks, 0U);
}

TEST(Patch, NeverMuchLongerThanTheWeights) {
  const WeightPair pair =
      make_pair({WeightType::kFloat32, 200001, 1.0, OldWeights::kRandomBits, Change::kRandomBits, false}, 4);
  const ByteVector patch = patch_of(pair, WeightType::kFloat32);
  EXPECT_LE(patch.size(), 56 + pair.from.size() + std::size_t{4} * 5);
  EXPECT_EQ(inspect_patch(patch)->full_chunks, 4U);
}

// The bits by hand: form, count 1 (width 1, 3 below the 4 that it is near to), position 2 in a Rice code with
// parameter 2 for 1 among 5, the sign of a step down, no longer steps (width 0).
TEST(Patch, ASmallPatchIsAsWrittenByHand) {
  const std::array<std::uint16_t, 5> from{0x3F80, 0x3F81, 0x3F82, 0x8000, 0x0000};
  std::array<std::uint16_t, 5> to = from;
  --to[2];
  const auto patch =
      make_patch(std::as_bytes(std::span(from)), std::as_bytes(std::span(to)), WeightType::kBFloat16);
  ASSERT_TRUE(patch);
  ASSERT_EQ(patch->size(), 56U + 1 + 3);
  const auto byte = [&](std::size_t at) { return std::to_integer<unsigned>((*patch)[at]); };
  EXPECT_EQ(byte(10), 2U);
  EXPECT_EQ(byte(11), 16U);
  EXPECT_EQ(byte(56), 4U);  // a changed chunk of 3 bytes
  // 00, 11111 0, 0 01 (2), 1, 1111111 0: lowest bit first.
  const unsigned bits = 0b11111U << 2 | 0b100U << 8 | 1U << 11 | 0b1111111U << 12;
  EXPECT_EQ(byte(57) | byte(58) << 8 | byte(59) << 16, bits);
}

TEST(Patch, KnowsWhatItIs) {
  const WeightPair pair = make_pair({WeightType::kFloat16, 70000, 0.01}, 5);
  const ByteVector patch = patch_of(pair, WeightType::kFloat16);
  const auto info = inspect_patch(patch);
  ASSERT_TRUE(info);
  std::uint64_t changes = 0;
  for (std::size_t i = 0; i < pair.from.size(); i += 2) {
    changes += std::memcmp(&pair.from[i], &pair.to[i], 2) == 0 ? 0U : 1U;
  }
  EXPECT_EQ(info->changes, changes);
  EXPECT_EQ(info->type, WeightType::kFloat16);
  EXPECT_EQ(info->elements, 70000U);
  EXPECT_EQ(info->chunk_elements, 65536U);
  EXPECT_EQ(info->chunks, 2U);
  EXPECT_EQ(info->changed_chunks, 2U);
  EXPECT_EQ(info->full_chunks, 0U);
  EXPECT_EQ(info->old_digest, *weights_digest(pair.from, WeightType::kFloat16));
  EXPECT_EQ(info->new_digest, *weights_digest(pair.to, WeightType::kFloat16));
}

// What fine-tuning does to 16-bit weights: the chance of a change doubles with each lower exponent.
WeightPair fine_tuned(std::uint64_t count, double rate) {
  WeightPair pair = make_pair({WeightType::kBFloat16, count, 0.0}, 6);
  CounterRng random(7, count);
  for (std::uint64_t i = 0; i < count; ++i) {
    std::uint16_t pattern = 0;
    std::memcpy(&pattern, pair.from.data() + 2 * i, 2);
    const unsigned exponent = pattern >> 7 & 0xFF;
    const double chance = std::min(1.0, rate * static_cast<double>(1U << std::min(30U, 130 - exponent)));
    if (random.next_uniform() < chance)
      pattern = static_cast<std::uint16_t>(pattern + (random.next() % 2 == 0 ? 1 : 0xFFFF));
    std::memcpy(pair.to.data() + 2 * i, &pattern, 2);
  }
  return pair;
}

TEST(Patch, TakesFewBitsAChange) {
  const WeightPair rare = fine_tuned(1 << 20, 1e-5);
  const WeightPair frequent = fine_tuned(1 << 20, 1e-4);
  const auto bits_a_change = [](const WeightPair& pair) {
    const ByteVector patch = patch_of(pair, WeightType::kBFloat16);
    return 8.0 * static_cast<double>(patch.size()) / static_cast<double>(inspect_patch(patch)->changes);
  };
  EXPECT_LT(bits_a_change(rare), 9.5);
  EXPECT_LT(bits_a_change(frequent), 6.5);
}

TEST(Patch, RefusesWeightsThatItWasNotMadeFrom) {
  const WeightPair pair = make_pair({WeightType::kBFloat16, 70000, 0.02}, 8);
  const ByteVector patch = patch_of(pair, WeightType::kBFloat16);
  for (const std::size_t at : {std::size_t{0}, std::size_t{77777}, pair.from.size() - 1}) {
    ByteVector other = pair.from;
    other[at] ^= std::byte{0x40};
    const ByteVector before = other;
    testing::expect_refused(apply_patch(patch, other, WeightType::kBFloat16, other), ErrorCode::kMismatch);
    EXPECT_TRUE(other == before);
    EXPECT_EQ(verify_patch(patch, other, WeightType::kBFloat16).error().code, ErrorCode::kMismatch);
  }
  // The new version, too: nothing is applied twice.
  ByteVector weights = pair.to;
  EXPECT_EQ(apply_patch(patch, weights, WeightType::kBFloat16, weights).error().code, ErrorCode::kMismatch);
  EXPECT_TRUE(weights == pair.to);
}

TEST(Patch, RefusesAnotherTensor) {
  const WeightPair pair = make_pair({WeightType::kBFloat16, 1000, 0.02}, 9);
  const ByteVector patch = patch_of(pair, WeightType::kBFloat16);
  ByteVector out(2000);
  EXPECT_EQ(apply_patch(patch, pair.from, WeightType::kFloat16, out).error().code, ErrorCode::kMismatch);
  const Bytes shorter = Bytes(pair.from).first(1998);
  EXPECT_EQ(apply_patch(patch, shorter, WeightType::kBFloat16, MutBytes(out).first(1998)).error().code,
            ErrorCode::kMismatch);
}

TEST(Patch, RefusesCallsThatMakeNoSense) {
  ByteVector weights(12);
  const Bytes shorter = Bytes(weights).first(8);
  const auto code = [](const auto& result) { return result.error().code; };
  EXPECT_EQ(code(make_patch(weights, shorter, WeightType::kFloat32)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(make_patch(Bytes(weights).first(5), Bytes(weights).first(5), WeightType::kBFloat16)),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(make_patch(weights, weights, WeightType{0})), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(weights_digest(weights, WeightType{9})), ErrorCode::kInvalidArgument);
  const ByteVector patch = *make_patch(shorter, shorter, WeightType::kFloat32);
  EXPECT_EQ(code(apply_patch(patch, shorter, WeightType{9}, MutBytes(weights).last(8))),
            ErrorCode::kInvalidArgument);
  // 4 bytes in common, from either side; another length.
  EXPECT_EQ(code(apply_patch(patch, shorter, WeightType::kFloat32, MutBytes(weights).last(8))),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(
      code(apply_patch(patch, Bytes(weights).last(8), WeightType::kFloat32, MutBytes(weights).first(8))),
      ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(apply_patch(patch, shorter, WeightType::kFloat32, MutBytes(weights).first(4))),
            ErrorCode::kInvalidArgument);
}

TEST(Patch, SideBySideIsNoOverlap) {
  const WeightPair pair = make_pair({WeightType::kFloat32, 100, 0.2}, 10);
  const ByteVector patch = patch_of(pair, WeightType::kFloat32);
  ByteVector memory(800);
  std::ranges::copy(pair.from, memory.begin());
  EXPECT_TRUE(apply_patch(patch, Bytes(memory).first(400), WeightType::kFloat32, MutBytes(memory).last(400)));
  EXPECT_TRUE(std::ranges::equal(Bytes(memory).last(400), pair.to));
}

TEST(Patch, NoByteDependsOnThreads) {
  Workers workers(3);
  const WeightPair pair = make_pair({WeightType::kBFloat16, 2500000, 0.01}, 11);
  const ByteVector alone = patch_of(pair, WeightType::kBFloat16);
  const auto shared = make_patch(pair.from, pair.to, WeightType::kBFloat16, &workers);
  ASSERT_TRUE(shared);
  EXPECT_TRUE(*shared == alone);
  ByteVector weights = pair.from;
  ASSERT_TRUE(apply_patch(alone, weights, WeightType::kBFloat16, weights, &workers));
  EXPECT_TRUE(weights == pair.to);
  EXPECT_EQ(*weights_digest(pair.to, WeightType::kBFloat16, &workers),
            *weights_digest(pair.to, WeightType::kBFloat16));
}

TEST(Patch, TypesHaveNamesAndSizes) {
  EXPECT_EQ(weight_type_name(WeightType::kFloat8E4M3), "float8_e4m3");
  EXPECT_EQ(weight_type_name(WeightType{0}), "unknown");
  EXPECT_EQ(weight_bytes(WeightType::kFloat32), 4U);
  EXPECT_EQ(weight_bytes(WeightType::kFloat8E5M2), 1U);
  EXPECT_EQ(weight_bytes(WeightType{9}), 0U);
}

}  // namespace
}  // namespace deltawire::patch_test
