// Memory that cannot be had, at every place where a step asks for some: an error on the rank, never a crash
// or a hang, all ranks alike, residuals and tensors as the error says, and a later step that works.
#include <algorithm>
#include <barrier>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/counted_new_testing.h"
#include "base/random.h"
#include "reduce/rank_threads_testing.h"
#include "reduce/reduce_queue.h"

namespace deltawire::allocation_failure_test {
namespace {

constexpr int kWorld = 3;
constexpr std::size_t kCount = 20000;
constexpr std::uint64_t kDims[] = {200, 100};
constexpr std::size_t kBiasCount = 100;  // below min_elements: raw
using State = std::vector<std::byte>;

std::vector<float> gradient(int rank, std::uint64_t step) {
  const CounterRng random(step, static_cast<std::uint64_t>(rank));
  std::vector<float> values(kCount + kBiasCount);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(random.uniform_at(i) - 0.5);
  return values;
}

// A rank's share of a step: dense tensors and, where the codec has the form, one with keys.
struct StepInput {
  StepInput(int rank, std::uint64_t step, bool has_pairs) : values(gradient(rank, step)) {
    list = {{"weight", {values.data(), kCount, DType::kF32}, 0},
            {"bias", {values.data() + kCount, kBiasCount, DType::kF32}, 0}};
    list[0].tensor.dims = kDims;
    if (!has_pairs) return;
    for (std::uint32_t i = 0; i < 60; ++i) pairs.keys.push_back(700 * i + static_cast<std::uint32_t>(rank));
    pairs.values.assign(60, 1.0F);
    list.push_back({"clicks", {pairs.values.data(), 60, DType::kF32, pairs.keys.data(), 50000}, 0});
  }
  Bucket bucket(Pairs& mean) const { return {list, std::span(&mean, list.size() == 3 ? 1 : 0)}; }

  std::vector<float> values;
  Pairs pairs;
  std::vector<Named> list;
};

// What a rank had of a step. No memory is taken while it goes on.
struct Outcome {
  bool failed = false;
  ErrorCode code = ErrorCode::kInvalidArgument;
  std::vector<float> values;
  Pairs mean;
};

std::ptrdiff_t count_failed(const std::vector<Outcome>& outcomes) {
  return std::ranges::count_if(outcomes, &Outcome::failed);
}

class Failing {
 public:
  Failing(const std::string& spec, Revert revert) : has_pairs_(spec.find("fastsgd") != std::string::npos) {
    for (int rank = 0; rank < kWorld; ++rank) {
      ReducerOptions options;
      options.revert = revert;
      reducers_.push_back(reducer_of(spec, options));
    }
  }

  // One step on a new mesh, through a queue; so many of its allocations fail, from number `failing` on. The
  // allocations so far.
  std::int64_t step(std::uint64_t number, std::int64_t failing, std::vector<Outcome>& outcomes,
                    std::int64_t in_a_row = 1) {
    outcomes.assign(kWorld, {});
    std::barrier together(kWorld);
    std::int64_t allocations = 0;
    run_ranks(kWorld, {}, [&](int rank, Transport& transport) {
      Outcome& own = outcomes[static_cast<std::size_t>(rank)];
      StepInput input(rank, number, has_pairs_);
      ReduceQueue queue(*reducers_[static_cast<std::size_t>(rank)], transport);
      std::atomic<bool> done = false;
      const auto finished = [&own, &done](const Result<Report>& report) {
        own.failed = !report;
        if (!report) own.code = report.error().code;
        done = true;
        done.notify_one();
      };
      together.arrive_and_wait();
      if (rank == 0) testing::arm_failure(failing, failing < 0 ? 0 : in_a_row);
      together.arrive_and_wait();
      queue.submit(input.bucket(own.mean), {number, 0, true}, std::chrono::seconds(3), finished);
      done.wait(false);
      together.arrive_and_wait();
      if (rank == 0) allocations = testing::disarm_failure();
      together.arrive_and_wait();
      own.values = input.values;
    });
    return allocations;
  }

  std::vector<State> save() const { return states(reducers_); }
  void load(const std::vector<State>& states) {
    for (std::size_t i = 0; i < states.size(); ++i) ASSERT_TRUE(reducers_[i]->load(states[i]));
  }
  // Everything encoded and taken back: what a failed step leaves that was begun.
  std::vector<State> taken_back(std::uint64_t number) {
    const std::vector<State> before = save();
    run_ranks(kWorld, {}, [&](int rank, Transport& transport) {
      const StepInput input(rank, number, has_pairs_);
      Pairs mean;
      Reducer& reducer = *reducers_[static_cast<std::size_t>(rank)];
      ASSERT_TRUE(reducer.begin(input.bucket(mean), {number, 0, true}, transport, in_seconds(5)));
      transport.abort({ErrorCode::kAborted, "test", rank});
      EXPECT_FALSE(reducer.finish());
    });
    std::vector<State> after = save();
    load(before);
    return after;
  }

 private:
  bool has_pairs_;
  Reducers reducers_;
};

struct Case {
  std::string spec;
  Revert revert;
  int in_a_row = 1;  // allocations that fail
};

class AllocationFailure : public ::testing::TestWithParam<Case> {};

TEST_P(AllocationFailure, AnywhereIsAnErrorAndNoMore) {
  Failing ranks(GetParam().spec, GetParam().revert);
  std::vector<Outcome> outcomes;
  ranks.step(0, -1, outcomes);
  const std::vector<State> before = ranks.save();
  const std::vector<State> taken_back = ranks.taken_back(1);
  const std::int64_t allocations = ranks.step(1, -1, outcomes);
  ASSERT_EQ(count_failed(outcomes), 0);
  const std::vector<State> committed = ranks.save();
  const std::vector<float> means = outcomes[0].values;
  const Pairs pairs_mean = outcomes[0].mean;
  ASSERT_GT(allocations, 30);

  int tried = 0;
  int failed = 0;
  int torn = 0;
  // Every other one: three ranks run the same code side by side, so each place is met three times. In brief
  // about two of three places.
  for (std::int64_t n = 0; n < allocations; n += testing::whole_or_brief(2, 5)) {
    SCOPED_TRACE("allocation " + std::to_string(n) + " of " + std::to_string(allocations));
    ranks.load(before);
    ranks.step(1, n, outcomes, GetParam().in_a_row);
    const std::vector<State> after = ranks.save();
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      const Outcome& own = outcomes[rank];
      if (own.failed) {
        EXPECT_TRUE(own.values == gradient(static_cast<int>(rank), 1)) << "rank " << rank;
        EXPECT_TRUE(own.mean.keys.empty()) << "rank " << rank;
        EXPECT_TRUE(after[rank] == before[rank] || after[rank] == taken_back[rank]) << "rank " << rank;
      } else {
        EXPECT_TRUE(own.values == means) << "rank " << rank;
        EXPECT_TRUE(own.mean.keys == pairs_mean.keys && own.mean.values == pairs_mean.values);
        EXPECT_TRUE(after[rank] == committed[rank]) << "rank " << rank;
      }
    }
    ++tried;
    failed += count_failed(outcomes) > 0 ? 1 : 0;
    torn += count_failed(outcomes) % kWorld != 0 ? 1 : 0;
    ranks.step(2, -1, outcomes);
    EXPECT_EQ(count_failed(outcomes), 0);
    for (const Outcome& own : outcomes) EXPECT_TRUE(own.values == outcomes[0].values);
  }
  std::printf("%ld allocations: %d failed steps, %d torn\n", allocations, failed, torn);
  EXPECT_GT(failed, tried / 2);
  EXPECT_EQ(torn, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Specs, AllocationFailure,
    ::testing::Values(Case{"direct(3lc)", Revert::kFold}, Case{"direct(3lc)", Revert::kExact},
                      Case{"direct(fp32)", Revert::kFold}, Case{"ring(onebit)", Revert::kExact},
                      Case{"gather(sbc)", Revert::kFold}, Case{"gather(fastsgd)", Revert::kExact},
                      Case{"direct(fastsgd)", Revert::kExact}, Case{"direct(3lc)", Revert::kFold, 3},
                      Case{"gather(sbc)", Revert::kExact, 10}, Case{"powersgd:rank=2", Revert::kFold},
                      Case{"powersgd:rank=2", Revert::kExact, 3}),
    [](const auto& chosen) {
      std::string name = chosen.param.spec;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      return name + (chosen.param.revert == Revert::kFold ? "fold" : "exact") +
             std::to_string(chosen.param.in_a_row);
    });

}  // namespace
}  // namespace deltawire::allocation_failure_test
