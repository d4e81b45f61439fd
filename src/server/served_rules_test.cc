// Servers that step by the table's rules: what they step by is exact, and workers keep the servers' bits.
#include "server/served_rules.h"

#include <cmath>

#include <gtest/gtest.h>

#include "base/little_endian.h"
#include "deltawire/optimizer.h"
#include "optim/lines.h"
#include "server/server_testing.h"

namespace deltawire::server_test {
namespace {

Job job_of(std::string optimizer, std::string push, std::string rules_of) {
  return {.options = {.servers = 2, .push = std::move(push), .pull = "3lc", .rules_of = std::move(rules_of)},
          .workers = 3,
          .optimizer = std::move(optimizer),
          .steps = 6,
          .has_dims = true};
}

TEST(ServedRules, LeaveWorkersWithTheServersBits) {
  for (const std::string push : {"3lc", "step<2: fp32, rest 3lc", "topk:k=1%", "conv*: 3lc, rest twobit"}) {
    for (const std::string optimizer : {"momentum:lr=0.1", "adam:lr=0.01", "adamw:lr=0.01"}) {
      Job job = job_of(optimizer, push, optimizer);
      job.steps = 30;  // the first 25 are another codec's
      const Outcome outcome = run(job);
      expect_equal_bits(outcome);
      for (const Values& values : outcome.view) {
        for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << push << " " << optimizer;
      }
    }
  }
}

TEST(ServedRules, LeaveLateAndStaleWorkersWithTheServersBits) {
  for (const bool is_stale : {false, true}) {
    Job job = job_of("adamw:lr=0.01", "step<2: fp32, rest 3lc", "adamw");
    (is_stale ? job.options.staleness : job.options.max_lag) = 2;
    if (!is_stale) job.options.backup = 1;
    job.steps = 20;
    expect_equal_bits(run_and_compare_versions(job));
  }
}

// A late codec under Adam: no first moment, at three quarters of the rate. The first steps are named, so that
// the rule changes no codec.
TEST(ServedRules, ChangeTheOptimizersSettings) {
  const std::string push = "step<1: topk:k=5%, rest topk:k=1%";
  const Outcome by_rule = run(job_of("adam:lr=0.01", push, "adam:lr=0.01"));
  const Outcome by_hand = run(job_of("adam:lr=0.0075,beta1=0", push, ""));
  EXPECT_EQ(by_rule.master[0], by_hand.master[0]);
  EXPECT_EQ(by_rule.master[2], by_hand.master[2]);
  EXPECT_NE(by_rule.master[1], by_hand.master[1]) << "a raw tensor is not late";
  EXPECT_NE(by_rule.master[0], run(job_of("adam:lr=0.01", push, "")).master[0]);
}

// The mean of `of` over a row's elements, by rows.
std::vector<double> row_means(std::uint64_t rows, std::size_t count, const auto& of) {
  std::vector<double> means(rows);
  for (std::size_t i = 0; i < count; ++i) {
    means[i * rows / count] += of(i) * static_cast<double>(rows) / static_cast<double>(count);
  }
  return means;
}

// The optimizer of a job's only server.
Optimizer optimizer_of(const Job& job, const Outcome& outcome) {
  auto optimizer = make_optimizer(job.optimizer);
  const Bytes state = outcome.server_states.at(0);
  const auto bytes = load_le<std::uint64_t>(state.data() + 32 + 16);  // after the head and two numbers
  EXPECT_TRUE(optimizer->load(state.subspan(state.size() - 4 - bytes, bytes)));
  return *std::move(optimizer);
}

// With beta1 = 0 the first moment is what the optimizer got in the last step.
TEST(ServedRules, LoseNothingOfAGradient) {
  Job job = job_of("adamw:lr=0.01,beta1=0", "step<2: fp32, rest 3lc", "adamw");
  job.options.servers = 1;
  Job shorter = job;
  --shorter.steps;
  const Outcome before = run(shorter);
  const Outcome after = run(job);
  const Optimizer optimizer = optimizer_of(job, after);
  for (const std::size_t tensor : {std::size_t{0}, std::size_t{2}}) {
    const auto got = optimizer.moments(shapes()[tensor].first + "@0").first;
    std::vector<double> due(got.size());
    for (std::size_t worker = 0; worker < 3; ++worker) {
      const Values own = gradient(worker, shorter.steps, tensor);
      for (std::size_t i = 0; i < due.size(); ++i) {
        due[i] += before.residuals[worker][tensor][i] + own[i] - after.residuals[worker][tensor][i];
      }
    }
    for (std::size_t i = 0; i < due.size(); ++i) ASSERT_NEAR(got[i], due[i] / 3, 1e-5) << tensor << " " << i;
  }
}

// The optimizer's second moment is that of what workers handed in, not of what 3lc made of it.
TEST(ServedRules, StepByTheSquaresOfExactGradients) {
  Job job = job_of("adamw:lr=0.01,beta2=0.9", "step<2: fp32, rest 3lc", "adamw");
  job.options.servers = 1;
  const Optimizer optimizer = optimizer_of(job, run(job));
  constexpr std::size_t kTensor = 2;
  const std::size_t count = shapes()[kTensor].second;
  const std::uint64_t rows = dims_of(kTensor)[0];
  std::vector<double> expected(rows);
  for (std::uint64_t step = 0; step < job.steps; ++step) {
    std::vector<Values> all;
    for (std::size_t worker = 0; worker < 3; ++worker) all.push_back(gradient(worker, step, kTensor));
    const auto now = row_means(rows, count, [&](std::size_t i) {
      const double sum = static_cast<double>(all[0][i]) + all[1][i] + all[2][i];
      const double squares = std::pow(all[0][i], 2) + std::pow(all[1][i], 2) + std::pow(all[2][i], 2);
      return (step < 2 ? sum * sum : squares) / 9;
    });
    for (std::uint64_t row = 0; row < rows; ++row) expected[row] = 0.9 * expected[row] + 0.1 * now[row];
  }
  const MomentsView moments = optimizer.moments(shapes()[kTensor].first + "@0");
  ASSERT_EQ(moments.second.size(), count);
  const auto found = row_means(rows, count, [&](std::size_t i) { return moments.second[i]; });
  for (std::uint64_t row = 0; row < rows; ++row) EXPECT_NEAR(found[row] / expected[row], 1, 0.005) << row;
}

// Of rows whose second moments are 1, 1/4, 1/16 and so on: their roots, but none below the least.
TEST(ServedRules, ScaleRowsByTheRootsOfTheirMoments) {
  auto mesh = connect_inproc(2);
  ASSERT_TRUE(mesh);
  Model model(7, true);
  const auto served = ServedModel::make(model.tensors, {}, *(*mesh)[0]);
  auto rules = ServedRules::make({});
  ASSERT_TRUE(served && rules);
  constexpr std::size_t kPart = 2;
  PartLines server(*served, kPart, *rules, true);
  Values moment(shapes()[kPart].second);
  for (std::size_t i = 0; i < moment.size(); ++i) moment[i] = std::pow(0.25F, static_cast<float>(i / 40));
  ASSERT_TRUE(server.encode_scales(moment, 3, 0, 0.01));
  Values values(moment.size(), 1.0F);
  server.multiply_rows(values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    EXPECT_NEAR(values[i], std::max(0.01, std::pow(0.5, i / 40)), 1e-4) << i;
  }
  server.divide_rows(values);
  for (const float value : values) EXPECT_NEAR(value, 1, 1e-6);
}

TEST(ServedRules, FitBothCodecsToTheOptimizer) {
  const auto adamw = fitted_to({.push = "3lc", .pull = "3lc", .rules_of = "adamw"}, 4);
  ASSERT_TRUE(adamw);
  EXPECT_NE(adamw->push.find("step<25: fp4"), std::string::npos) << adamw->push;
  EXPECT_NE(adamw->pull.find("pull=0.5"), std::string::npos) << adamw->pull;
  const auto none = fitted_to({.push = "3lc", .pull = "3lc"}, 4);
  EXPECT_EQ(none->push, "3lc");
  EXPECT_FALSE(fitted_to({.rules_of = "no optimizer"}, 4));
}

TEST(ServedRules, AreOfTheOptimizerThatSteps) {
  auto mesh = connect_inproc(2);
  ASSERT_TRUE(mesh);
  Model model(7);
  const auto server = make_server(model.tensors, "sgd", {.rules_of = "adamw"}, *(*mesh)[0]);
  ASSERT_FALSE(server);
  EXPECT_NE(server.error().message.find("is another optimizer than 'sgd"), std::string::npos);
  EXPECT_FALSE(make_worker(model.tensors, {.rules_of = "no optimizer"}, *(*mesh)[1]));
}

TEST(ServedRules, NeedNoWarning) {
  const auto warned = [](const ServerOptions& options) { return server_warnings("adamw", options)->size(); };
  EXPECT_EQ(warned({.push = "3lc"}), 1U);
  EXPECT_EQ(warned({.push = "3lc", .rules_of = "adamw"}), 0U);
  EXPECT_EQ(warned({.push = "3lc:s=1.75", .rules_of = "adamw"}), 1U) << "loses in spite of it";
  EXPECT_EQ(server_warnings("rmsprop", {.push = "3lc", .rules_of = "rmsprop"})->size(), 1U) << "has no rule";
}

}  // namespace
}  // namespace deltawire::server_test
