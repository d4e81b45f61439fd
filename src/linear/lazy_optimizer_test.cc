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

class LazyOptimizerIs : public ::testing::TestWithParam<const char*> {};

// L2 that rests, with learning rates that change, against the dense step of src/optim.
TEST_P(LazyOptimizerIs, TheDenseStep) {
  auto dense = make_optimizer(std::string_view(GetParam()));
  ASSERT_TRUE(dense);
  auto lazy = LazyOptimizer::make(dense->settings(), kCount);
  ASSERT_TRUE(lazy) << lazy.error().message;
  CounterRng random(3);
  std::vector<float> expected(kCount);
  for (float& weight : expected) weight = static_cast<float>(random.next_uniform() - 0.5);
  std::vector<float> weights = expected;
  const bool exact = dense->settings().kind != OptimizerKind::kSgd;
  for (int step = 0; step < 500; ++step) {
    const double rate = dense->settings().learning_rate * (step % 100 == 99 ? 0.8 : 1);
    ASSERT_TRUE(dense->set_learning_rate(rate));
    ASSERT_TRUE(lazy->set_learning_rate(rate));
    const Pairs gradient = drawn_gradient(random);
    std::vector<float> full(kCount);
    for (std::size_t i = 0; i < gradient.keys.size(); ++i) full[gradient.keys[i]] = gradient.values[i];
    ASSERT_TRUE(dense->step("w", expected, full));
    lazy->step(gradient, weights);
    for (const std::uint32_t key : gradient.keys) {
      if (!exact) break;
      ASSERT_EQ(weights[key], expected[key]) << "step " << step << ", key " << key;
    }
  }
  lazy->bring_up_all(weights);
  for (std::size_t key = 0; key < kCount; ++key) {
    if (exact) {
      ASSERT_EQ(weights[key], expected[key]) << key;
    } else {
      ASSERT_NEAR(weights[key], expected[key], 1e-6) << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, LazyOptimizerIs,
    ::testing::Values("sgd:lr=0.1,weight_decay=0.05", "sgd:lr=0.1", "adagrad:lr=0.1,weight_decay=0.01",
                      "adagrad:lr=0.1,weight_decay=0.01,lr_decay=0.1,initial_accumulator=0.5",
                      "adagrad:lr=0.1", "adam:lr=0.01,weight_decay=0.01", "adam:lr=0.01"),
    [](const auto& each) { return "case" + std::to_string(each.index); });

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
