// A codec for each bucket.
#include <gtest/gtest.h>

#include "planner/planner_testing.h"

namespace deltawire::planner {
namespace {

// A codec with few bytes and slow encoding, and one with many bytes and free encoding.
std::vector<CodecFigures> small_or_quick() {
  std::vector<CodecFigures> codecs{slow_codec(Pattern::kDirect, 1), free_codec(Pattern::kDirect)};
  codecs[0].encode.value_seconds = codecs[0].decode.value_seconds = 4e-7;
  return codecs;
}

// All of the first bucket's bytes can be sent before the second is ready, but the processor has no time to
// encode them while it computes.
Workload long_before_short() {
  return step_of({bucket_of(640'000, 0), bucket_of(32'000, 3)}, 3);
}

Site one_core() {
  Site site = bare_site(2);
  site.machine.cores = 1;
  return site;
}

std::optional<Mix> mix(const Workload& workload, const Site& site, const std::vector<CodecFigures>& codecs,
                       Tier tier = Tier::kLossy) {
  const auto made = make_mix(workload, site, codecs, tier);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? *made : std::nullopt;
}

double step(const Workload& workload, const std::vector<CodecFigures>& codecs,
            const std::vector<std::size_t>& of_bucket) {
  const auto made = predict_by_bucket(workload, bare_site(2), codecs, of_bucket);
  EXPECT_TRUE(made) << (made ? "" : made.error().message);
  return made ? made->step_seconds : 0;
}

TEST(ByBucket, EachBucketHasItsOwnBitsAndTimes) {
  // 16,000 values each way; see Plain.IsARing for 0.128, Direct.EveryStageOfAPiece for 0.176 with 8 bits.
  const std::vector<CodecFigures> codecs{slow_codec(Pattern::kDirect), free_codec(Pattern::kDirect)};
  const Workload workload = step_of({bucket_of(32000, 0), bucket_of(32000, 10)});
  EXPECT_DOUBLE_EQ(step(workload, codecs, {0, 1}), 10.128);
  EXPECT_DOUBLE_EQ(step(workload, codecs, {1, 0}), 10.176);
  const auto both = predict_by_bucket(workload, bare_site(2), codecs, {0, 1});
  ASSERT_TRUE(both);
  EXPECT_DOUBLE_EQ(both->bytes_sent, 32000 * (1 + 4));
  EXPECT_DOUBLE_EQ(both->coding_seconds, 3 * 0.016 + 4 * 0.032);
}

TEST(ByBucket, BucketsWithoutValuesKeepTheOthersPlaces) {
  const std::vector<CodecFigures> codecs{slow_codec(Pattern::kDirect), free_codec(Pattern::kDirect)};
  const Workload workload = step_of({PlanBucket{{{"nothing", 0}}, 0}, bucket_of(32000)});
  EXPECT_DOUBLE_EQ(step(workload, codecs, {0, 1}), 0.128);
}

TEST(ByBucket, RefusesWhatDoesNotFit) {
  const Workload workload = step_of({bucket_of(320), bucket_of(320)});
  const std::vector<CodecFigures> codecs{free_codec(Pattern::kDirect), free_codec(Pattern::kRing)};
  EXPECT_FALSE(predict_by_bucket(workload, bare_site(2), codecs, {0}));
  EXPECT_FALSE(predict_by_bucket(workload, bare_site(2), codecs, {0, 2}));
  EXPECT_FALSE(predict_by_bucket(workload, bare_site(2), codecs, {0, 1}));
  EXPECT_TRUE(predict_by_bucket(workload, bare_site(2), codecs, {1, 1}));
}

TEST(Mix, CodesWhatIsWaitedForAndNotWhatComputingHides) {
  const auto codecs = small_or_quick();
  const auto found = mix(long_before_short(), one_core(), codecs);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->of_bucket, (std::vector<std::size_t>{1, 0}));
  for (std::size_t all = 0; all < codecs.size(); ++all) {
    const auto one = predict(long_before_short(), one_core(), codecs[all]);
    ASSERT_TRUE(one);
    EXPECT_LT(found->prediction.step_seconds, one->step_seconds);
  }
}

TEST(Mix, NoneWhereOneForAllIsAsFast) {
  EXPECT_FALSE(mix(step_of({bucket_of(32000)}), bare_site(2), small_or_quick()));
  const std::vector<CodecFigures> one{free_codec(Pattern::kDirect)};
  EXPECT_FALSE(mix(step_of({bucket_of(32000), bucket_of(32000, 1)}), bare_site(2), one));
  EXPECT_FALSE(mix(step_of({bucket_of(32000), bucket_of(32000, 1)}), bare_site(2), {}));
}

TEST(Mix, TakesNoCodecThatTheTierForbids) {
  EXPECT_TRUE(mix(long_before_short(), one_core(), small_or_quick(), Tier::kLossy));
  EXPECT_FALSE(mix(long_before_short(), one_core(), small_or_quick(), Tier::kNearLossless));
}

TEST(Mix, BeatsWhatIsFastestForAllInAnyPattern) {
  std::vector<CodecFigures> codecs = small_or_quick();
  codecs.push_back(free_codec(Pattern::kGather, 1));
  EXPECT_FALSE(mix(long_before_short(), one_core(), codecs));
  std::swap(codecs.front(), codecs.back());  // the order of codecs does not count
  EXPECT_FALSE(mix(long_before_short(), one_core(), codecs));
}

}  // namespace
}  // namespace deltawire::planner
