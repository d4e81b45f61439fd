// Every target's kernels give the reference's bytes, and decode them.
#include <algorithm>

#include <gtest/gtest.h>

#include "codecs/target_testing.h"
#include "patch/patch_coding.h"
#include "patch/patch_testing.h"

namespace deltawire::patch_target_test {
namespace {

using namespace testing;

class PatchTarget : public ::testing::TestWithParam<TargetId> {
 protected:
  void SetUp() override { testing::skip_unless_runnable(GetParam()); }
};

void expect_reference_bytes(TargetId target, const PairCase& wanted, unsigned chunk_bits) {
  const WeightPair pair = testing::make_pair(wanted, chunk_bits);
  const patch::Weights from{pair.from, wanted.type};
  const auto expected = patch::make(from, pair.to, chunk_bits, {});
  const auto patch = patch::make(from, pair.to, chunk_bits, {target});
  ASSERT_TRUE(expected && patch);
  EXPECT_TRUE(*patch == *expected) << weight_type_name(wanted.type) << " " << wanted.count;
  ByteVector weights = pair.from;
  const Status applied = patch::apply(*expected, {weights, wanted.type}, weights, {target});
  ASSERT_TRUE(applied) << applied.error().message;
  EXPECT_TRUE(weights == pair.to) << weight_type_name(wanted.type) << " " << wanted.count;
}

TEST_P(PatchTarget, GivesTheReferencesBytes) {
  for (const WeightType type : testing::kWeightTypes) {
    for (const std::uint64_t count : {1U, 31U, 64U, 100U, 4099U, 70001U}) {
      for (const double share : {0.004, 0.1, 0.7}) {
        for (const OldWeights weights : {OldWeights::kRandomBits, OldWeights::kBell}) {
          const Change change = count % 2 == 0 ? Change::kOneUnit : Change::kFewUnits;
          const unsigned chunk_bits = count == 4099 ? patch::kMinChunkBits : patch::kMaxChunkBits;
          expect_reference_bytes(GetParam(), {type, count, share, weights, change, false}, chunk_bits);
        }
      }
    }
  }
}

class PatchCopy : public PatchTarget {};

TEST_P(PatchCopy, CopiesAndHashes) {
  const patch::Kernels& kernels = patch::kernels_for(GetParam());
  const WeightPair pair = testing::make_pair({WeightType::kInt8, 1700, 0, OldWeights::kRandomBits}, 1);
  for (std::size_t count = 1; count < pair.from.size(); count += count < 70 ? 1 : 61) {
    const Bytes from = Bytes(pair.from).first(count);
    ByteVector to(count);
    EXPECT_EQ(kernels.copy(from.data(), count, to.data()), patch::chunk_digest(from)) << count;
    EXPECT_TRUE(std::ranges::equal(to, from)) << count;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PatchCopy, ::testing::ValuesIn(testing::runnable_targets()),
                         testing::target_name);
INSTANTIATE_TEST_SUITE_P(All, PatchTarget, ::testing::ValuesIn(testing::beyond_reference()),
                         testing::target_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PatchTarget);

}  // namespace
}  // namespace deltawire::patch_target_test
