// A caller who obeys the one rule of each revert loses nothing and gives nothing twice, whatever kinds of
// tensors the model has and whichever of a step's buckets were begun before it failed.
#include <chrono>
#include <cmath>
#include <future>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "reduce/rank_threads_testing.h"
#include "reduce/reduce_queue.h"

namespace deltawire::failed_steps_test {
namespace {

using Values = std::vector<float>;

constexpr int kWorld = 3;
constexpr std::uint64_t kLast = 9;  // its codecs send all that waits

// Of each kind, with and without residuals; the bias is raw.
struct Kind {
  std::string name;
  std::string codec;
  std::size_t count;
  double bound;  // of what came out, relative to what went in
};
const std::vector<Kind> kKinds{{"bias", "", 50, 1e-6},
                               {"a.weight", "3lc", 90000, 1e-5},
                               {"b.weight", "gcomp", 3000, 1e-5},
                               {"c.weight", "sbc:p=1%", 3000, 1e-4},
                               {"d.weight", "fp32", 3000, 1e-6},
                               {"e.weight", "int8", 3000, 1e-5},
                               {"f.weight", "bf16", 3000, 0x1p-5}};

// Of a codec that the pattern refuses int8 takes the place.
std::string rules_of_all(const std::string& pattern) {
  std::string rules = "step>=" + std::to_string(kLast) + ": fp32, ";
  for (const Kind& kind : kKinds) {
    if (kind.codec.empty()) continue;
    const bool is_taken = make_reducer(pattern + "(" + kind.codec + ")").has_value();
    rules += kind.name + ": " + (is_taken ? kind.codec : "int8") + ", ";
  }
  return pattern + "(" + rules + "rest fp32)";
}

using Model = std::vector<Values>;  // by kind

Model zeros() {
  Model model;
  for (const Kind& kind : kKinds) model.emplace_back(kind.count, 0.0F);
  return model;
}

Model gradient(int rank, std::uint64_t step) {
  Model model = zeros();
  for (std::size_t k = 0; k < model.size(); ++k) {
    for (std::size_t i = 0; i < model[k].size(); ++i) {
      const std::size_t mixed = i * 7919 + static_cast<std::size_t>(rank) * 31 + step * 101 + k * 13;
      model[k][i] = static_cast<float>(mixed % 41) - 20;
    }
  }
  return model;
}

void add(const Model& more, Model& sums, float factor = 1.0F) {
  for (std::size_t k = 0; k < sums.size(); ++k) {
    for (std::size_t i = 0; i < sums[k].size(); ++i) sums[k][i] += factor * more[k][i];
  }
}

// A rank's state, which outlives its transports, and what its caller knows.
struct Rank {
  std::unique_ptr<WakeableReducer> reducer;
  Model given = zeros();
  Model came_out = zeros();
};

// A bucket for each tensor. Rank 1 ends the step once it has begun so many of them, before it hands in the
// rest; 0 is before the first, and `kNever` lets the step count.
constexpr std::size_t kNever = 1000;

bool play(std::vector<Rank>& ranks, std::uint64_t number, std::size_t abort_before,
          const std::vector<Model>& inputs) {
  std::vector<int> failed(kWorld, 0);
  run_ranks(kWorld, {}, [&](int rank, Transport& transport) {
    Rank& own = ranks[static_cast<std::size_t>(rank)];
    Model tensors = inputs[static_cast<std::size_t>(rank)];
    std::promise<void> over;
    std::size_t ended = 0;
    ReduceQueue queue(*own.reducer, transport);
    for (std::uint32_t b = 0; b < kKinds.size(); ++b) {
      if (rank == 1 && b == abort_before) transport.abort({ErrorCode::kAborted, "a fault", 1});
      const Named tensor{kKinds[b].name, {tensors[b].data(), tensors[b].size(), DType::kF32}, 0};
      queue.submit(std::span(&tensor, 1), {number, b, b + 1 == kKinds.size()}, std::chrono::seconds(20),
                   [&](const Result<Report>& report) {
                     if (!report) failed[static_cast<std::size_t>(rank)] = 1;
                     if (++ended == kKinds.size()) over.set_value();
                   });
    }
    over.get_future().wait();
    queue.stop();
    if (failed[static_cast<std::size_t>(rank)] == 0) add(tensors, own.came_out);
  });
  for (const int each : failed) EXPECT_EQ(each, failed[0]);
  return failed[0] != 0;
}

void expect_conserved(const std::string& spec, const ReducerOptions& options) {
  std::vector<Rank> ranks(kWorld);
  for (Rank& rank : ranks) rank.reducer = reducer_of(spec, options);
  const bool folds = options.revert == Revert::kFold;
  // Of each step that fails, and of one after another; the last of them is in the step after one that counts.
  const std::vector<std::size_t> aborts{kNever, 3, 0, 6, kNever, 1, kNever};
  for (std::uint64_t step = 0; step < aborts.size(); ++step) {
    std::vector<Model> inputs;
    for (int rank = 0; rank < kWorld; ++rank) {
      inputs.push_back(gradient(rank, step));
      add(inputs.back(), ranks[static_cast<std::size_t>(rank)].given);
    }
    if (!play(ranks, step, aborts[step], inputs)) continue;
    ASSERT_NE(aborts[step], kNever);
    if (folds) continue;  // the rule: never again
    ASSERT_FALSE(play(ranks, step, kNever, inputs));
  }
  Model tiny = zeros();  // what waits would not leave with zeros
  for (std::vector<float>& values : tiny) std::ranges::fill(values, 1e-30F);
  ASSERT_FALSE(play(ranks, kLast, kNever, std::vector<Model>(kWorld, tiny)));
  Model given = zeros();
  for (const Rank& rank : ranks) add(rank.given, given, 1.0F / kWorld);
  for (std::size_t k = 0; k < kKinds.size(); ++k) {
    double worst = 0;
    for (std::size_t i = 0; i < kKinds[k].count; ++i) {
      const auto off = static_cast<double>(std::fabs(given[k][i] - ranks[0].came_out[k][i]));
      worst = std::max(worst, off);
    }
    // Each of up to seven steps adds 20 at most.
    EXPECT_LE(worst, 140 * kKinds[k].bound) << spec << " " << kKinds[k].name << (folds ? ", folding" : "");
  }
}

class FailedSteps : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Patterns, FailedSteps,
                         ::testing::Values("direct", "gather", "ring", "hierarchical:group=2"));

TEST_P(FailedSteps, AreGivenAgainByDefault) {
  expect_conserved(rules_of_all(GetParam()), {});
}

TEST_P(FailedSteps, ComeLaterWhereTheyAreFolded) {
  if (sends_own(GetParam())) expect_conserved(rules_of_all(GetParam()), folding());
}

std::string refusal(const std::string& spec, ReducerOptions options) {
  const auto made = make_reducer(spec, options);
  EXPECT_FALSE(made) << spec;
  if (made) return "";
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
  return made.error().message;
}

// What can't be folded is refused before anything is sent, and says what to take.
TEST(Folding, IsRefusedWhereItCannotBeTrue) {
  for (const std::string spec : {"ring(int8)", "hierarchical:group=2(int8)"}) {
    EXPECT_NE(refusal(spec, folding()).find("take the exact revert"), std::string::npos) << spec;
  }
  ReducerOptions passing = folding();
  passing.policy.nonfinite = NonFinite::kPass;
  for (const std::string spec : {"direct(3lc)", "gather(sbc)", "powersgd"}) {
    EXPECT_NE(refusal(spec, passing).find("take the exact revert"), std::string::npos) << spec;
  }
  run_ranks(1, {}, [](int, Transport& transport) {
    Pairs own{{3, 8}, {1.0F, 2.0F}, 100};
    Pairs mean;
    const Named tensor{"clicks", {own.values.data(), 2, DType::kF32, own.keys.data(), 100}, 0};
    const auto reducer = reducer_of("gather(fastsgd)", folding());
    testing::expect_refused(
        reducer->begin({std::span(&tensor, 1), std::span(&mean, 1)}, {0, 0, true}, transport, in_seconds(5)),
        ErrorCode::kInvalidArgument, "take the exact revert");
    EXPECT_FALSE(reducer->explain(std::span(&tensor, 1), 0)[0].takes_pairs);
  });
}

}  // namespace
}  // namespace deltawire::failed_steps_test
