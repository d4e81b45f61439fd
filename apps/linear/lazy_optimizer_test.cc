#include "linear/lazy_optimizer.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "base/random.h"

namespace deltawire::linear {
namespace {

constexpr std::size_t kCount = 200;

Pairs drawn_gradient(CounterRng& random) {
  Pairs gradient;
  gradient.dimension = kCount;
  for (std::uint32_t key = 0; key < kCount; ++key) {
    // Some keys come often, some hardly ever, one never.
    if (key == 7 || random.next_uniform() > 1.0 / (1 + key % 40)) continue;
    gradient.keys.push_back(key);
    gradient.values.push_back(static_cast<float>(random.next_uniform() - 0.5));
  }
  return gradient;
}

// Both optimizers on their way, with the same gradients and the same learning rates, which change.
struct BothWays {
  explicit BothWays(const char* spec, std::uint64_t seed)
      : dense(*make_optimizer(std::string_view(spec))),
        lazy(*LazyOptimizer::make(dense.settings(), kCount)),
        random(seed),
        expected(kCount) {
    for (float& weight : expected) weight = static_cast<float>(random.next_uniform() - 0.5);
    weights = expected;
  }

  // Step 1 and so on; returns the gradient.
  Pairs step(int number) {
    const double rate = dense.settings().learning_rate * (number % 100 == 0 ? 0.8 : 1);
    EXPECT_TRUE(dense.set_learning_rate(rate));
    EXPECT_TRUE(lazy.set_learning_rate(rate));
    Pairs gradient = drawn_gradient(random);
    std::vector<float> full(kCount);
    for (std::size_t i = 0; i < gradient.keys.size(); ++i) full[gradient.keys[i]] = gradient.values[i];
    EXPECT_TRUE(dense.step("w", expected, full));
    lazy.step(gradient, weights);
    return gradient;
  }

  Optimizer dense;
  LazyOptimizer lazy;
  CounterRng random;
  std::vector<float> expected;
  std::vector<float> weights;
};

constexpr int kStepsBeside = 500;

class LazyOptimizerIs : public ::testing::TestWithParam<const char*> {};

// L2 that rests, against the dense step of src/optim.
TEST_P(LazyOptimizerIs, TheDenseStep) {
  BothWays both(GetParam(), 3);
  const bool exact = both.dense.settings().kind != OptimizerKind::kSgd;
  for (int step = 1; step <= kStepsBeside; ++step) {
    const Pairs gradient = both.step(step);
    for (const std::uint32_t key : gradient.keys) {
      if (!exact) break;
      ASSERT_EQ(both.weights[key], both.expected[key]) << "step " << step << ", key " << key;
    }
  }
  both.lazy.bring_up_all(both.weights);
  for (std::size_t key = 0; key < kCount; ++key) {
    if (exact) {
      ASSERT_EQ(both.weights[key], both.expected[key]) << key;
    } else {
      ASSERT_NEAR(both.weights[key], both.expected[key], 1e-6) << key;
    }
  }
}

// Averages of weights that rest, against sums over dense steps: at the end, and asked for midway.
TEST_P(LazyOptimizerIs, TheDenseAverage) {
  for (const double power : {0.0, 1.0, 3.5}) {
    SCOPED_TRACE(power);
    BothWays both(GetParam(), 4);
    both.lazy.keep_average(power);
    std::vector<double> sums(kCount);
    double total = 0;
    for (int step = 1; step <= kStepsBeside; ++step) {
      both.step(step);
      const double share = std::pow(step, power);
      total += share;
      for (std::size_t key = 0; key < kCount; ++key) {
        sums[key] += share * static_cast<double>(both.expected[key]);
      }
      if (step % 180 != 0 && step != kStepsBeside) continue;
      double squares = 0;
      both.lazy.bring_up_all(both.weights);
      for (std::uint32_t key = 0; key < kCount; ++key) {
        ASSERT_NEAR(both.lazy.result(key, both.weights), sums[key] / total, 1e-6)
            << "step " << step << ", key " << key;
        squares += sums[key] * sums[key] / (total * total);
      }
      ASSERT_NEAR(both.lazy.squares_of_results(both.weights), squares, 1e-4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LazyOptimizerIs,
    ::testing::Values("sgd:lr=0.1,weight_decay=0.05", "sgd:lr=1,weight_decay=0.5", "sgd:lr=0.1",
                      "adagrad:lr=0.1,weight_decay=0.01",
                      "adagrad:lr=0.1,weight_decay=0.01,lr_decay=0.1,initial_accumulator=0.5",
                      "adagrad:lr=0.1", "adam:lr=0.01,weight_decay=0.01", "adam:lr=0.01"),
    [](const auto& each) { return "case" + std::to_string(each.index); });

TEST(LazyOptimizer, KeepsAveragesInTwelveBytesAWeight) {
  for (const char* name : {"sgd", "adagrad", "adam"}) {
    OptimizerSettings settings = *parse_optimizer(name);
    auto without = LazyOptimizer::make(settings, kCount);
    auto with = LazyOptimizer::make(settings, kCount);
    with->keep_average(1);
    const bool counts_steps = settings.kind == OptimizerKind::kAdam;
    EXPECT_EQ(with->state_bytes(), without->state_bytes() + (counts_steps ? 8 : 12) * kCount) << name;
    std::vector<float> weights(kCount, 0.5F);
    EXPECT_EQ(with->result(3, weights), 0.0F);  // of no step
    EXPECT_EQ(without->result(3, weights), 0.5F);
  }
}

TEST(LazyOptimizer, RefusesWhatItCannotDo) {
  EXPECT_FALSE(LazyOptimizer::make(*parse_optimizer("momentum"), 4));
  EXPECT_FALSE(LazyOptimizer::make(*parse_optimizer("adamw"), 4));
  EXPECT_FALSE(LazyOptimizer::make(*parse_optimizer("sgd:lr=2,weight_decay=0.5"), 4));
  auto fits = LazyOptimizer::make(*parse_optimizer("sgd:lr=1,weight_decay=0.5"), 4);
  ASSERT_TRUE(fits);
  EXPECT_FALSE(fits->set_learning_rate(2));
}

}  // namespace
}  // namespace deltawire::linear
