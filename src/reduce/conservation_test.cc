// No gradient is lost or doubled on its way through a pattern: by tensors that nobody used in a step, or by
// steps that fail.
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reduce/rank_threads.h"

namespace deltawire {
namespace {

constexpr int kWorld = 3;
constexpr std::size_t kCount = 70000;  // cut among the ranks
constexpr std::size_t kFew = 500;      // one owner

using Reducers = std::vector<std::unique_ptr<Reducer>>;
using Values = std::vector<float>;

Reducers reducers_of(const std::string& spec, const ReducerOptions& options = {}) {
  Reducers reducers;
  for (int rank = 0; rank < kWorld; ++rank) reducers.push_back(reducer_of(spec, options));
  return reducers;
}

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
  Values large;
  Values small;
};

// One step of two tensors on every rank, which `prepare` fills.
std::vector<Outcome> one_step(Reducers& reducers, std::uint64_t number,
                              const std::function<void(int, Outcome&)>& prepare) {
  std::vector<Outcome> outcomes(kWorld);
  run_ranks(kWorld, {}, [&](int rank, Transport& transport) {
    Outcome& own = outcomes[static_cast<std::size_t>(rank)];
    own.large.assign(kCount, 0.0F);
    own.small.assign(kFew, 0.0F);
    prepare(rank, own);
    const std::vector<Named> tensors{{"large", {own.large.data(), kCount, DType::kF32}, 0},
                                     {"small", {own.small.data(), kFew, DType::kF32}, 0}};
    const auto report = reducers[static_cast<std::size_t>(rank)]->all_reduce(tensors, {number, 0, 0, true},
                                                                             transport, in_seconds(20));
    own.failed = !report;
  });
  return outcomes;
}

std::vector<std::vector<std::byte>> states(const Reducers& reducers) {
  std::vector<std::vector<std::byte>> all;
  for (const auto& reducer : reducers) all.push_back(*reducer->save());
  return all;
}

// By reducer spec.
class UnusedTensors : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Specs, UnusedTensors,
                         ::testing::Values("direct(3lc:s=1.75)", "direct(int8)", "direct(sbc)", "gather(3lc)",
                                           "gather(sbc)", "gather(fastsgd:residual=on)", "ring(3lc)",
                                           "ring(int8)"));

// A framework throws the mean of a tensor away that no rank has used: so nothing may be spent on it.
TEST_P(UnusedTensors, OfAllRanksCostNothing) {
  Reducers reducers = reducers_of(GetParam());
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
  for (const std::string spec : {"direct(3lc)", "gather(3lc)", "ring(3lc)", "direct(int8)", "ring(int8)"}) {
    Reducers reducers = reducers_of(spec);
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

// A rank whose input can't be encoded: its step is folded like that of the others, less what is not finite.
TEST(FoldedStep, IsKeptWholeOnTheRankThatFailed) {
  for (const std::string spec : {"direct(3lc)", "gather(3lc:s=1.5)", "gather(sbc)"}) {
    for (const std::size_t spoiled : {std::size_t{0}, kCount / 2, kCount - 1}) {
      const auto prepare = [&](int rank, std::uint64_t step, Outcome& own) {
        own.large = whole(rank, step, kCount);
        own.small = whole(rank, step, kFew);
      };
      Reducers failing = reducers_of(spec);
      Reducers smooth = reducers_of(spec);
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
        const Values small = whole(rank, 1, kFew);
        for (std::size_t i = 0; i < kCount; ++i) own.large[i] += rank == 1 && i == spoiled ? 0 : large[i];
        for (std::size_t i = 0; i < kFew; ++i) own.small[i] += small[i];
      });
      for (int rank = 0; rank < kWorld; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        EXPECT_TRUE(got[at].large == wanted[at].large) << spec << " spoiled at " << spoiled;
        EXPECT_TRUE(got[at].small == wanted[at].small) << spec << " spoiled at " << spoiled;
      }
      EXPECT_TRUE(states(failing) == states(smooth)) << spec << " spoiled at " << spoiled;
    }
  }
}

}  // namespace
}  // namespace deltawire
