#include <cmath>
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

// The parameter, 1 at first, after each of two steps with gradients 2 and -4.
std::vector<float> two_steps(std::string_view spec) {
  Optimizer optimizer = optimizer_of(spec);
  std::vector<float> theta{1};
  std::vector<float> seen;
  for (const float gradient : {2.0F, -4.0F}) {
    EXPECT_TRUE(optimizer.step("w", theta, std::vector<float>{gradient}));
    seen.push_back(theta[0]);
  }
  return seen;
}

// Numbers for which every operation is exact, computed by hand from the formulas of appendix A.
TEST(Optimizer, TwoStepsByHand) {
  EXPECT_EQ(two_steps("sgd:lr=0.5,weight_decay=0.5"), (std::vector<float>{-0.25F, 1.8125F}));
  // b = 2, then 0.5 * 2 + 0.5 * -4 = -1: PyTorch's first step is not dampened.
  EXPECT_EQ(two_steps("momentum:lr=0.25,momentum=0.5,dampening=0.5"), (std::vector<float>{0.5F, 0.75F}));
  // b = 2, g + mu b = 3; b = -3, g + mu b = -5.5.
  EXPECT_EQ(two_steps("nesterov:lr=0.5,momentum=0.5"), (std::vector<float>{-0.5F, 2.25F}));
  // r = 5 + 4 = 9, then 9 + 16 = 25; eta halves.
  const auto adagrad = two_steps("adagrad:lr=3,lr_decay=1,eps=0,initial_accumulator=5");
  EXPECT_FLOAT_EQ(adagrad[0], -1.0F);
  EXPECT_FLOAT_EQ(adagrad[1], -1.0F + 1.5F * 4 / 5);
  // v = 4 * 0.25 = 1, then 0.75 + 4 = 4.75.
  const auto rmsprop = two_steps("rmsprop:lr=0.5,alpha=0.75,eps=1");
  EXPECT_EQ(rmsprop[0], 0.5F);
  EXPECT_FLOAT_EQ(rmsprop[1], 0.5F + 2 / (std::sqrt(4.75F) + 1));
  // Without moments (beta 0) a step is the gradient's sign.
  EXPECT_EQ(two_steps("adam:lr=0.5,beta1=0,beta2=0,eps=0"), (std::vector<float>{0.5F, 1.0F}));
  EXPECT_EQ(two_steps("adamw:lr=0.5,beta1=0,beta2=0,eps=0,weight_decay=0.5"),
            (std::vector<float>{0.25F, 0.6875F}));
}

// Adam's formulas in float64 over three steps, with a decay that enters the gradient or shrinks the
// parameter.
TEST(Optimizer, AdamsDecayEntersTheGradientAndAdamWsDoesNot) {
  for (const bool decoupled : {false, true}) {
    Optimizer optimizer = optimizer_of(std::string(decoupled ? "adamw" : "adam") +
                                       ":lr=0.25,beta1=0.5,beta2=0.75,eps=0.5,weight_decay=0.5");
    std::vector<float> parameter{1};
    double theta = 1;
    double m = 0;
    double v = 0;
    for (int t = 1; t <= 3; ++t) {
      const float gradient = t == 2 ? -4.0F : 2.0F;
      ASSERT_TRUE(optimizer.step("w", parameter, std::vector<float>{gradient}));
      const double g =
          decoupled ? static_cast<double>(gradient) : static_cast<double>(gradient) + 0.5 * theta;
      if (decoupled) theta -= 0.25 * 0.5 * theta;
      m = 0.5 * m + 0.5 * g;
      v = 0.75 * v + 0.25 * g * g;
      const double root = std::sqrt(v / (1 - std::pow(0.75, t)));
      theta -= 0.25 * (m / (1 - std::pow(0.5, t))) / (root + 0.5);
      ASSERT_NEAR(parameter[0], theta, 1e-6) << decoupled << " step " << t;
    }
  }
}

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
  EXPECT_FALSE(optimizer.step("w", parameters, Pairs{{0}, {1.0F}, 5}));
  EXPECT_FALSE(optimizer.step("w", parameters, random_values(3, 1)));
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
