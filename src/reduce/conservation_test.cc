// No gradient is lost or doubled on its way through a pattern: by tensors that nobody used in a step, or by
// steps that fail.
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reduce/rank_threads_testing.h"

namespace deltawire::conservation_test {
namespace {

constexpr int kWorld = 3;
constexpr std::size_t kCount = 70000;  // cut among the ranks
constexpr std::size_t kFew = 500;      // one owner
constexpr std::size_t kRaw = 20;       // travels uncompressed
constexpr std::array<std::uint64_t, 2> kLargeDims{280, 250};
constexpr std::array<std::uint64_t, 2> kSmallDims{25, 20};

using Values = std::vector<float>;

// Whole numbers, so that sums of a few are exact.
Values whole(int rank, std::uint64_t step, std::size_t count) {
  Values values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>((i * 7919 + static_cast<std::size_t>(rank) * 31 + step * 101) % 41) - 20;
  }
  return values;
}

struct Outcome {
  bool failed = false;
  Error error;
  bool finite = true;
  Values large;
  Values small;
  Values raw;
};

// One step on every rank, whose tensors `prepare` fills; the small ones are a bucket of their own.
std::vector<Outcome> one_step(
    Reducers& reducers, std::uint64_t number, const std::function<void(int, Outcome&)>& prepare,
    const std::function<float(int)>& scale = [](int) { return 1.0F; }) {
  std::vector<Outcome> outcomes(kWorld);
  run_ranks(kWorld, {}, [&](int rank, Transport& transport) {
    Outcome& own = outcomes[static_cast<std::size_t>(rank)];
    own.large.assign(kCount, 0.0F);
    own.small.assign(kFew, 0.0F);
    own.raw.assign(kRaw, 0.0F);
    prepare(rank, own);
    Named large{"large", {own.large.data(), kCount, DType::kF32}, 0};
    large.tensor.dims = kLargeDims;
    std::vector<Named> others{{"small", {own.small.data(), kFew, DType::kF32}, 0},
                              {"raw", {own.raw.data(), kRaw, DType::kF32}, 0}};
    others[0].tensor.dims = kSmallDims;
    Reducer& reducer = *reducers[static_cast<std::size_t>(rank)];
    const Step first{number, 0, false, scale(rank)};
    const Step second{number, 1, true, scale(rank)};
    Status done = reducer.begin(std::span(&large, 1), first, transport, in_seconds(20));
    if (done) done = reducer.begin(others, second, transport, in_seconds(20));
    for (int bucket = 0; done && bucket < 2; ++bucket) {
      const auto report = reducer.finish();
      if (report) own.finite = report->finite;
      if (!report) done = forward_error(report);
    }
    own.failed = !done;
    if (!done) own.error = done.error();
  });
  return outcomes;
}

// By reducer spec.
class UnusedTensors : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Specs, UnusedTensors,
                         ::testing::Values("direct(3lc:s=1.75)", "direct(int8)", "direct(sbc)", "gather(3lc)",
                                           "gather(sbc)", "gather(fastsgd:residual=on)", "ring(onebit)",
                                           "ring(int8)", "powersgd:rank=4(fp32)"));

// A framework throws the mean of a tensor away that no rank has used: so nothing may be spent on it.
TEST_P(UnusedTensors, OfAllRanksCostNothing) {
  Reducers reducers = reducers_of(GetParam(), kWorld);
  one_step(reducers, 0, [](int rank, Outcome& own) {
    own.large = whole(rank, 0, kCount);
    own.small = whole(rank, 0, kFew);
  });
  const auto before = states(reducers);
  const auto means = one_step(reducers, 1, [](int, Outcome&) {});
  for (const Outcome& mean : means) {
    EXPECT_FALSE(mean.failed);
    EXPECT_EQ(mean.large, Values(kCount, 0.0F));
    EXPECT_EQ(mean.small, Values(kFew, 0.0F));
  }
  EXPECT_TRUE(before == states(reducers));
}

// What one rank alone used goes out as ever. (Equal values: the first encoding of these codecs is exact.)
TEST(UnusedTensor, OfSomeRanksIsSentByTheOthers) {
  for (const std::string spec :
       {"direct(3lc)", "gather(3lc)", "ring(onebit)", "direct(int8)", "ring(int8)"}) {
    Reducers reducers = reducers_of(spec, kWorld);
    const auto means = one_step(reducers, 0, [](int rank, Outcome& own) {
      if (rank == 1) own.large.assign(kCount, 3.0F);
    });
    for (const Outcome& outcome : means) {
      EXPECT_FALSE(outcome.failed) << spec;
      EXPECT_EQ(outcome.small, Values(kFew, 0.0F)) << spec;
      for (const float value : outcome.large) ASSERT_NEAR(value, 1.0F, 1e-6F) << spec;
    }
  }
}

// What a rank put in comes out as NaN on all of them, and the step leaves no trace.
class NonFiniteSteps : public ::testing::TestWithParam<std::string> {
 protected:
  static void fill(int rank, std::uint64_t step, Outcome& own) {
    own.large = whole(rank, step, kCount);
    own.small = whole(rank, step, kFew);
    own.raw = whole(rank, step, kRaw);
  }
};

INSTANTIATE_TEST_SUITE_P(Specs, NonFiniteSteps,
                         ::testing::Values("direct(3lc:s=1.75)", "direct(int8)", "direct(sbc)",
                                           "direct(fastsgd)", "direct(fp32)", "direct(gcomp)", "gather(3lc)",
                                           "gather(sbc)", "gather(fastsgd:residual=on)", "gather(bf16)",
                                           "ring(onebit)", "ring(int8)", "ring(gcomp)",
                                           "powersgd:rank=4(fp32)"));

TEST_P(NonFiniteSteps, PassAlikeOnAllRanksAndLeaveNoTrace) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::function<void(Outcome&)>> spoilers{
      [&](Outcome& own) { own.large[kCount / 2] = nan; },
      [&](Outcome& own) { own.large[0] = -infinity; },
      [&](Outcome& own) { own.small[kFew - 1] = infinity; },
      [&](Outcome& own) { own.raw[3] = nan; },
  };
  Reducers smooth = reducers_of(GetParam(), kWorld, passing());
  const auto first = one_step(smooth, 0, [](int rank, Outcome& own) { fill(rank, 0, own); });
  for (const Outcome& outcome : first) EXPECT_TRUE(!outcome.failed && outcome.finite);
  const auto before = states(smooth);
  const auto wanted = one_step(smooth, 2, [](int rank, Outcome& own) { fill(rank, 2, own); });
  for (std::size_t which = 0; which < spoilers.size(); ++which) {
    Reducers spoiled = reducers_of(GetParam(), kWorld, passing());
    for (std::size_t rank = 0; rank < kWorld; ++rank) ASSERT_TRUE(spoiled[rank]->load(before[rank]));
    const auto bad = one_step(spoiled, 1, [&](int rank, Outcome& own) {
      fill(rank, 1, own);
      if (rank == 1) spoilers[which](own);
    });
    for (const Outcome& outcome : bad) {
      ASSERT_FALSE(outcome.failed) << which << ": " << outcome.error.message;
      EXPECT_FALSE(outcome.finite) << which;
      for (const auto& [own, other] :
           {std::pair{&outcome.large, &bad[0].large}, std::pair{&outcome.small, &bad[0].small},
            std::pair{&outcome.raw, &bad[0].raw}}) {
        EXPECT_EQ(std::memcmp(own->data(), other->data(), 4 * own->size()), 0) << which;
      }
      const std::vector<float> places{outcome.large[kCount / 2], outcome.large[0], outcome.small[kFew - 1],
                                      outcome.raw[3]};
      EXPECT_FALSE(std::isfinite(places[which])) << which;
    }
    EXPECT_TRUE(states(spoiled) == before) << which;
    const auto got = one_step(spoiled, 2, [](int rank, Outcome& own) { fill(rank, 2, own); });
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      EXPECT_TRUE(got[rank].finite);
      EXPECT_TRUE(got[rank].large == wanted[rank].large) << which;
      EXPECT_TRUE(got[rank].small == wanted[rank].small) << which;
    }
  }
}

// What overflows on the way, in a codec's own arithmetic or in the sum, is as good as an infinity put in.
TEST(NonFiniteStep, OverflowsPassToo) {
  for (const std::string spec : {"direct(3lc:s=1.75)", "gather(3lc:s=1.75)", "ring(natural)"}) {
    Reducers reducers = reducers_of(spec, kWorld, passing());
    const auto outcomes = one_step(reducers, 0, [](int, Outcome& own) { own.large.assign(kCount, 3e38F); });
    for (const Outcome& outcome : outcomes) {
      ASSERT_FALSE(outcome.failed) << outcome.error.message;
      EXPECT_FALSE(outcome.finite);
      EXPECT_TRUE(std::isnan(outcome.large[kCount - 1]));
    }
    // Residuals of parts that no step has used exist by now, of zeros; so the next step is looked at.
    const auto next = one_step(reducers, 1, [](int, Outcome& own) { own.large.assign(kCount, 1.0F); });
    Reducers fresh = reducers_of(spec, kWorld, passing());
    const auto wanted = one_step(fresh, 1, [](int, Outcome& own) { own.large.assign(kCount, 1.0F); });
    for (std::size_t rank = 0; rank < kWorld; ++rank) EXPECT_TRUE(next[rank].large == wanted[rank].large);
  }
}

// A scale that grows beyond what a residual can follow: a gradient of that scale would overflow as well.
TEST(NonFiniteStep, AResidualThatOverflowsPasses) {
  Reducers reducers = reducers_of("direct(3lc)", kWorld, passing());
  one_step(
      reducers, 0, [](int rank, Outcome& own) { own.large = whole(rank, 0, kCount); },
      [](int) { return 0x1p-100F; });
  const auto before = states(reducers);
  const auto outcomes = one_step(
      reducers, 1, [](int rank, Outcome& own) { own.large = whole(rank, 1, kCount); },
      [](int) { return 0x1p100F; });
  for (const Outcome& outcome : outcomes) {
    ASSERT_FALSE(outcome.failed) << outcome.error.message;
    EXPECT_FALSE(outcome.finite);
  }
  EXPECT_TRUE(before == states(reducers));
}

TEST(NonFiniteStep, RanksMustAgreeToLetItPass) {
  Reducers reducers = reducers_of("direct(3lc)", kWorld);
  reducers[0] = reducer_of("direct(3lc)", passing());
  const auto outcomes = one_step(reducers, 0, [](int, Outcome& own) { own.large.assign(kCount, 1.0F); });
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.failed);
}

// A saved state says nothing about such steps: a job may go on with the other setting.
TEST(NonFiniteStep, StatesFitBothSettings) {
  Reducers reducers = reducers_of("direct(3lc)", kWorld);
  one_step(reducers, 0, [](int rank, Outcome& own) { own.large = whole(rank, 0, kCount); });
  const auto other = reducer_of("direct(3lc)", passing());
  const auto state = *reducers[0]->save();
  ASSERT_TRUE(other->load(state));
  EXPECT_EQ(*other->save(), state);
}

TEST(Scales, OfARankThatDiffersAreNamed) {
  for (const std::string spec : {"direct(3lc)", "gather(bf16)", "ring(gcomp)"}) {
    Reducers reducers = reducers_of(spec, kWorld);
    const auto outcomes = one_step(
        reducers, 0, [](int rank, Outcome& own) { own.large = whole(rank, 0, kCount); },
        [](int rank) { return rank == 1 ? 32768.0F : 65536.0F; });
    bool named = false;
    for (const Outcome& outcome : outcomes) {
      EXPECT_TRUE(outcome.failed) << spec;
      EXPECT_EQ(outcome.error.code, ErrorCode::kMismatch) << outcome.error.message;
      named = named || (outcome.error.message.find("32768") != std::string::npos &&
                        outcome.error.message.find("65536") != std::string::npos);
    }
    EXPECT_TRUE(named) << spec;
  }
}

// A loss scale that changes from step to step changes the means' unit and nothing else.
TEST(Scales, MayChangeFromStepToStep) {
  for (const std::string spec :
       {"direct(3lc:s=1.75)", "direct(sbc)", "gather(int8)", "ring(onebit)", "powersgd:rank=4(fp32)"}) {
    Reducers plain = reducers_of(spec, kWorld);
    Reducers scaled = reducers_of(spec, kWorld);
    const Values scales{65536.0F, 32768.0F, 32768.0F, 131072.0F};
    for (std::uint64_t step = 0; step < scales.size(); ++step) {
      const float scale = scales[step];
      const auto wanted = one_step(plain, step, [&](int rank, Outcome& own) {
        own.large = whole(rank, step, kCount);
        own.small = whole(rank, step, kFew);
      });
      const auto got = one_step(
          scaled, step,
          [&](int rank, Outcome& own) {
            own.large = whole(rank, step, kCount);
            own.small = whole(rank, step, kFew);
            for (float& value : own.large) value *= scale;
            for (float& value : own.small) value *= scale;
          },
          [&](int) { return scale; });
      for (std::size_t rank = 0; rank < kWorld; ++rank) {
        ASSERT_FALSE(got[rank].failed) << got[rank].error.message;
        for (std::size_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(got[rank].large[i], scale * wanted[rank].large[i]) << spec << " step " << step;
        }
        for (std::size_t i = 0; i < kFew; ++i) {
          ASSERT_EQ(got[rank].small[i], scale * wanted[rank].small[i]) << spec << " step " << step;
        }
      }
    }
  }
}

// A rank whose input can't be encoded: its step is folded like that of the others, less what is not finite.
TEST(FoldedStep, IsKeptWholeOnTheRankThatFailed) {
  for (const std::string spec : {"direct(3lc)", "gather(3lc:s=1.5)", "gather(sbc)"}) {
    for (const std::size_t spoiled : {std::size_t{0}, kCount / 2, kCount - 1}) {
      const auto prepare = [&](int rank, std::uint64_t step, Outcome& own) {
        own.large = whole(rank, step, kCount);  // alone: the second bucket may not have been begun
      };
      Reducers failing = reducers_of(spec, kWorld, folding());
      Reducers smooth = reducers_of(spec, kWorld, folding());
      for (Reducers* reducers : {&failing, &smooth}) {
        one_step(*reducers, 0, [&](int rank, Outcome& own) { prepare(rank, 0, own); });
      }
      const auto failed = one_step(failing, 1, [&](int rank, Outcome& own) {
        prepare(rank, 1, own);
        if (rank == 1) own.large[spoiled] = std::numeric_limits<float>::quiet_NaN();
      });
      for (const Outcome& outcome : failed) EXPECT_TRUE(outcome.failed) << spec;
      const auto got = one_step(failing, 2, [&](int rank, Outcome& own) { prepare(rank, 2, own); });
      const auto wanted = one_step(smooth, 2, [&](int rank, Outcome& own) {
        prepare(rank, 2, own);
        const Values large = whole(rank, 1, kCount);
        for (std::size_t i = 0; i < kCount; ++i) own.large[i] += rank == 1 && i == spoiled ? 0 : large[i];
      });
      for (int rank = 0; rank < kWorld; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        EXPECT_TRUE(got[at].large == wanted[at].large) << spec << " spoiled at " << spoiled;
      }
      EXPECT_TRUE(states(failing) == states(smooth)) << spec << " spoiled at " << spoiled;
    }
  }
}

}  // namespace
}  // namespace deltawire::conservation_test
