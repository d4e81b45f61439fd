#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_environment.h"
#include "optim/optimizer_testing.h"

namespace deltawire::optimizer_test {
namespace {

using namespace testing;

constexpr std::size_t kCount = 257;

// PyTorch's addcmul: (1 - beta2) times g, times g again, each rounded.
TEST(Optimizer, TheSecondMomentIsRoundedInPyTorchsOrder) {
  Optimizer optimizer = optimizer_of("adam:beta2=0.9");
  std::vector<float> parameters = random_values(kCount, 1);
  const std::vector<float> gradient = random_values(kCount, 2);
  ASSERT_TRUE(optimizer.step("w", parameters, gradient));
  const auto share = static_cast<float>(1 - 0.9);
  const MomentsView moments = optimizer.moments("w");
  std::size_t differ = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const float first = share * gradient[i];
    ASSERT_EQ(moments.second[i], first * gradient[i]) << i;
    const float square = gradient[i] * gradient[i];
    differ += share * square != moments.second[i] ? 1U : 0U;
  }
  EXPECT_GT(differ, 0U) << "any order gives these";
}

TEST(Optimizer, WithoutDecayAParameterDoesNotEnterItsGradient) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const char* spec : {"sgd:lr=0.5", "momentum:lr=0.5", "nesterov:lr=0.5"}) {
    Optimizer optimizer = optimizer_of(spec);
    std::vector<float> parameters{kInfinity, -kInfinity};
    ASSERT_TRUE(optimizer.step("w", parameters, std::vector<float>{1, 1}));
    EXPECT_EQ(parameters, (std::vector<float>{kInfinity, -kInfinity})) << spec;  // 0 * Inf would be NaN
  }
}

TEST(Optimizer, OnlyAdaGradHasAnInitialAccumulator) {
  OptimizerSettings settings = *parse_optimizer("rmsprop");
  settings.initial_accumulator = 7;  // no parameter of RMSProp: ignored
  Optimizer with = *make_optimizer(settings);
  Optimizer without = optimizer_of("rmsprop");
  std::vector<float> one{1};
  std::vector<float> other{1};
  ASSERT_TRUE(with.step("w", one, std::vector<float>{2}));
  ASSERT_TRUE(without.step("w", other, std::vector<float>{2}));
  EXPECT_EQ(bits_of(one), bits_of(other));
}

TEST(Optimizer, KeysForAllElementsGiveTheDenseStepBitForBit) {
  std::vector<std::uint32_t> keys(kCount);
  std::iota(keys.begin(), keys.end(), 0U);
  for (const auto spec : kOptimizerSpecs) {
    Optimizer dense = optimizer_of(spec);
    Optimizer sparse = optimizer_of(spec);
    std::vector<float> dense_parameters = random_values(kCount, 1);
    std::vector<float> sparse_parameters = dense_parameters;
    for (std::uint64_t t = 1; t <= 20; ++t) {
      const auto gradient = random_values(kCount, 10 + t);
      ASSERT_TRUE(dense.step("w", dense_parameters, gradient));
      ASSERT_TRUE(sparse.step("w", sparse_parameters, keys, gradient));
      ASSERT_EQ(bits_of(dense_parameters), bits_of(sparse_parameters)) << spec << " step " << t;
    }
    EXPECT_EQ(dense.save(), sparse.save());
  }
}

TEST(Optimizer, ASparseStepLeavesElementsWithoutAKeyAsTheyAre) {
  for (const auto spec : kOptimizerSpecs) {
    Optimizer optimizer = optimizer_of(spec);
    std::vector<float> parameters = random_values(kCount, 1);
    ASSERT_TRUE(optimizer.step("w", parameters, random_values(kCount, 2)));
    Optimizer dense = optimizer;
    std::vector<float> dense_parameters = parameters;
    const std::vector<float> before = parameters;
    const MomentsView view = optimizer.moments("w");
    const std::vector<float> first(view.first.begin(), view.first.end());
    const std::vector<float> second(view.second.begin(), view.second.end());
    const Pairs gradient{{0, 5, kCount - 1}, {0.5F, -0.25F, 1.0F}, kCount};
    std::vector<float> dense_gradient(kCount, 0.0F);
    for (std::size_t k = 0; k < 3; ++k) dense_gradient[gradient.keys[k]] = gradient.values[k];
    ASSERT_TRUE(optimizer.step("w", parameters, gradient));
    ASSERT_TRUE(dense.step("w", dense_parameters, dense_gradient));
    const MomentsView after = optimizer.moments("w");
    EXPECT_EQ(after.steps, 2U);  // Adam's bias corrections go on
    for (std::size_t i = 0; i < kCount; ++i) {
      const bool touched = i == 0 || i == 5 || i == kCount - 1;
      ASSERT_EQ(parameters[i], touched ? dense_parameters[i] : before[i]) << spec << " [" << i << "]";
      if (touched) continue;
      ASSERT_TRUE(first.empty() || after.first[i] == first[i]) << spec << " [" << i << "]";
      ASSERT_TRUE(second.empty() || after.second[i] == second[i]) << spec << " [" << i << "]";
    }
  }
}

TEST(Optimizer, AnAbsentKeyIsAGradientOfZeroForSgdAndAdaGradWithoutDecay) {
  for (const char* spec : {"sgd:lr=0.1", "adagrad:lr=0.1"}) {
    Optimizer dense = optimizer_of(spec);
    Optimizer sparse = optimizer_of(spec);
    std::vector<float> dense_parameters = random_values(kCount, 1);
    std::vector<float> sparse_parameters = dense_parameters;
    for (std::uint32_t t = 0; t < 10; ++t) {
      const Pairs gradient{{t, t + 100}, {0.5F, -2.0F}, kCount};
      std::vector<float> dense_gradient(kCount, 0.0F);
      for (std::size_t k = 0; k < 2; ++k) dense_gradient[gradient.keys[k]] = gradient.values[k];
      ASSERT_TRUE(dense.step("w", dense_parameters, dense_gradient));
      ASSERT_TRUE(sparse.step("w", sparse_parameters, gradient));
    }
    // eps = 1e-10 keeps AdaGrad's 0 / (sqrt(0) + eps) at 0.
    EXPECT_EQ(bits_of(dense_parameters), bits_of(sparse_parameters)) << spec;
  }
}

TEST(Optimizer, ASparseStepWithoutKeysCountsAndChangesNothing) {
  Optimizer optimizer = optimizer_of("adamw");
  std::vector<float> parameters = random_values(kCount, 1);
  const auto before = parameters;
  ASSERT_TRUE(optimizer.step("w", parameters, Pairs{{}, {}, kCount}));
  EXPECT_EQ(parameters, before);
  EXPECT_EQ(optimizer.moments("w").steps, 1U);
}

TEST(Optimizer, BadKeysAndCountsChangeNothing) {
  Optimizer optimizer = optimizer_of("adam");
  std::vector<float> parameters = random_values(4, 1);
  ASSERT_TRUE(optimizer.step("w", parameters, random_values(4, 2)));
  const auto before = parameters;
  const auto state = optimizer.save();
  const auto refusal = [&](std::vector<std::uint32_t> keys, std::size_t values) {
    const Status stepped = optimizer.step("w", parameters, keys, std::vector<float>(values, 1.0F));
    return stepped ? std::string("accepted") : stepped.error().message;
  };
  EXPECT_EQ(refusal({1, 4}, 2), "tensor 'w': key 4 at position 1 is beyond its 4 parameters");
  EXPECT_EQ(refusal({2, 2}, 2),
            "tensor 'w': key 2 at position 1 does not exceed the key before; give strictly increasing keys");
  EXPECT_EQ(refusal({0, 1}, 3), "tensor 'w': 2 keys where 3 are due");
  EXPECT_EQ(refusal({0, 1}, 1), "tensor 'w': 2 keys where 1 are due");
  for (const std::size_t count : {3U, 5U}) {
    EXPECT_FALSE(optimizer.step("w", parameters, Pairs{{0}, {1.0F}, count}));
    EXPECT_FALSE(optimizer.step("w", parameters, random_values(count, 1)));
  }
  std::vector<float> longer(5, 1.0F);
  const Status other = optimizer.step("w", longer, random_values(5, 1));
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message, "tensor 'w': 5 parameters where 4 are due");
  EXPECT_EQ(longer, std::vector<float>(5, 1.0F));
  EXPECT_EQ(parameters, before);
  EXPECT_EQ(optimizer.save(), state);
}

TEST(Optimizer, TensorsAreApartAndTheRateCanChange) {
  Optimizer optimizer = optimizer_of("momentum:lr=1,momentum=0.5");
  std::vector<float> a{0};
  std::vector<float> b{0, 0};
  ASSERT_TRUE(optimizer.step("a", a, std::vector<float>{-1}));
  ASSERT_TRUE(optimizer.step("a", a, std::vector<float>{0}));
  EXPECT_EQ(a[0], 1.5F);
  EXPECT_EQ(optimizer.moments("b").steps, 0U);
  EXPECT_TRUE(optimizer.momentum("b").empty());
  ASSERT_TRUE(optimizer.set_learning_rate(2));
  EXPECT_EQ(optimizer.spec(), "momentum:lr=2,momentum=0.5,dampening=0,weight_decay=0");
  ASSERT_TRUE(optimizer.step("b", b, std::vector<float>{-1, 1}));
  EXPECT_EQ(b, (std::vector<float>{2, -2}));
  optimizer.momentum("b")[1] = 0;  // masked: what was sent no longer carries on
  ASSERT_TRUE(optimizer.step("b", b, std::vector<float>{0, 0}));
  EXPECT_EQ(b, (std::vector<float>{3, -2}));
  EXPECT_FALSE(optimizer.set_learning_rate(-1));
  EXPECT_FALSE(optimizer.set_learning_rate(std::numeric_limits<double>::infinity()));
  EXPECT_EQ(optimizer.settings().learning_rate, 2);
}

TEST(Optimizer, StepsDoNotDependOnTheCallersFloatingPointMode) {
  for (const auto spec : kOptimizerSpecs) {
    Optimizer expected = optimizer_of(spec);
    Optimizer optimizer = optimizer_of(spec);
    std::vector<float> expected_parameters = random_values(kCount, 5, 1e-37F);
    std::vector<float> parameters = expected_parameters;
    const auto gradient = random_values(kCount, 6, 1e-37F);
    const std::uint64_t before = FloatEnvironment::read_control();
    for (int t = 0; t < 3; ++t) {
      ASSERT_TRUE(expected.step("w", expected_parameters, gradient));
      FloatEnvironment::write_control(before | FloatEnvironment::kFlushToZero | FloatEnvironment::kRoundUp);
      const Status stepped = optimizer.step("w", parameters, gradient);
      FloatEnvironment::write_control(before);
      ASSERT_TRUE(stepped);
    }
    EXPECT_EQ(bits_of(parameters), bits_of(expected_parameters)) << spec;
    EXPECT_EQ(optimizer.save(), expected.save()) << spec;
  }
}

}  // namespace
}  // namespace deltawire::optimizer_test
