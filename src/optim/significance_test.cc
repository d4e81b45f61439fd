#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_environment.h"
#include "optim/optimizer_testing.h"

namespace deltawire::significance_test {
namespace {

using namespace testing;

constexpr std::size_t kCount = 501;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Table 2 as it is printed, one element, in double; the moments are those of step t - 1. `size` is the sum of
// the magnitudes of its terms: what a rounding error is relative to.
struct Numerator {
  double value;
  double size;
};

Numerator of_terms(double a, double b, double c) {
  return {a - b - c, std::abs(a) + std::abs(b) + std::abs(c)};
}

Numerator table_2(const OptimizerSettings& s, std::uint64_t t, double theta, double first, double second) {
  const double eta = s.learning_rate;
  const double lambda = s.weight_decay;
  const double mu = s.momentum;
  const auto steps = static_cast<double>(t - 1);
  const double eta_t = eta / (1 + steps * s.lr_decay);
  const double unit = 1 - std::pow(s.beta1, static_cast<double>(t));
  const double root = std::sqrt(second / (1 - std::pow(s.beta2, steps)));
  switch (s.kind) {
    case OptimizerKind::kSgd: return of_terms(theta / eta, lambda * theta, 0);
    case OptimizerKind::kMomentum: {
      const double share = eta * (1 - s.dampening);
      return of_terms(theta / share, eta * mu * first / share, lambda * theta);
    }
    case OptimizerKind::kNesterov:
      return of_terms((1 - eta * lambda * (1 + mu)) * theta / (eta * (1 + mu)),
                      eta * mu * mu * first / (eta * (1 + mu)), 0);
    case OptimizerKind::kAdaGrad:
      return of_terms(theta * (std::sqrt(second) + s.eps) / eta_t, lambda * theta, 0);
    case OptimizerKind::kRmsProp:
      return of_terms(theta * (std::sqrt(second) + s.eps) / eta, lambda * theta, 0);
    case OptimizerKind::kAdam:
      return of_terms(theta * (root + s.eps) * unit / (eta * (1 - s.beta1)),
                      eta * s.beta1 * first / (eta * (1 - s.beta1)), lambda * theta);
    case OptimizerKind::kAdamW:
      return of_terms(theta * (root + s.eps) * unit * (1 - eta * lambda) / (eta * (1 - s.beta1)),
                      eta * s.beta1 * first / (eta * (1 - s.beta1)), 0);
  }
  return {};
}

std::vector<float> significance_of(const Optimizer& optimizer, std::span<const float> parameters) {
  std::vector<float> out(parameters.size(), 77.0F);
  const Status written = optimizer.significance("w", parameters, out);
  EXPECT_TRUE(written) << written.error().message;
  return out;
}

TEST(Significance, IsTable2WithTheMomentsOfTheStepBefore) {
  for (const auto spec : kOptimizerSpecs) {
    Optimizer optimizer = optimizer_of(spec);
    std::vector<float> parameters = random_values(kCount, 1);
    for (std::uint64_t t = 1; t <= 6; ++t) {
      ASSERT_TRUE(optimizer.step("w", parameters, random_values(kCount, t, 0.1F)));
      const auto out = significance_of(optimizer, parameters);
      const MomentsView moments = optimizer.moments("w");
      ASSERT_EQ(moments.steps, t);
      for (std::size_t i = 0; i < kCount; ++i) {
        const auto expected =
            table_2(optimizer.settings(), t + 1, parameters[i], moments.first.empty() ? 0 : moments.first[i],
                    moments.second.empty() ? 0 : moments.second[i]);
        ASSERT_NEAR(out[i], expected.value, 1e-6 * expected.size)
            << spec << " step " << t + 1 << " [" << i << "]";
      }
    }
  }
}

// Where the step is linear in the gradient, theta_t = A - B g, the numerator is A / B: two steps of the
// optimizer itself, with g = 0 and g = 1, give both.
TEST(Significance, IsMadeOfItsCoefficients) {
  for (const auto spec : kOptimizerSpecs) {
    Optimizer optimizer = optimizer_of(spec);
    std::vector<float> parameters = random_values(kCount, 1);
    for (std::uint64_t steps = 0; steps <= 3; ++steps) {
      const MomentsView moments = optimizer.moments("w");
      std::vector<float> out(parameters.size(), 77.0F);
      ASSERT_TRUE(significance(optimizer.settings(), parameters, moments, out)) << spec;
      const auto& first = moments.first;
      const auto& second = moments.second;
      const auto c =
          significance_coefficients(optimizer.settings(), moments.steps, !first.empty(), !second.empty());
      ASSERT_TRUE(c) << spec;
      for (std::size_t i = 0; i < out.size(); ++i) {
        volatile float unit = second.empty() ? 0.0F : c->root * std::sqrt(second[i]);
        unit = second.empty() ? c->plain : c->plain + unit;
        volatile float sum = parameters[i] * unit;
        volatile const float moment = first.empty() ? 0.0F : first[i] * c->momentum;
        sum = sum + moment;
        const bool is_there = c->is_defined && (second.empty() || second[i] > 0);
        EXPECT_EQ(out[i], is_there ? sum : 0.0F) << spec << " after " << steps;
      }
      ASSERT_TRUE(optimizer.step("w", parameters, random_values(kCount, steps + 1, 0.1F)));
    }
  }
  OptimizerSettings bad;
  bad.learning_rate = -1;
  EXPECT_FALSE(significance_coefficients(bad, 1, true, true));
}

TEST(Significance, IsWhatTheLinearStepsThemselvesSay) {
  for (const std::string_view spec : {kOptimizerSpecs[0], kOptimizerSpecs[1], kOptimizerSpecs[2]}) {
    Optimizer optimizer = optimizer_of(spec);
    std::vector<float> parameters = random_values(kCount, 2);
    for (std::uint64_t t = 1; t <= 4; ++t) {
      const auto out = significance_of(optimizer, parameters);
      std::vector<float> without(parameters);
      std::vector<float> with(parameters);
      ASSERT_TRUE(Optimizer(optimizer).step("w", without, std::vector<float>(kCount, 0.0F)));
      ASSERT_TRUE(Optimizer(optimizer).step("w", with, std::vector<float>(kCount, 1.0F)));
      for (std::size_t i = 0; i < kCount; ++i) {
        const double b = static_cast<double>(without[i]) - with[i];
        const double size = std::max(std::abs(without[i] / b), 1.0);
        ASSERT_NEAR(out[i], without[i] / b, 1e-4 * size) << spec << " step " << t << " [" << i << "]";
      }
      ASSERT_TRUE(optimizer.step("w", parameters, random_values(kCount, t, 0.1F)));
    }
  }
}

TEST(Significance, BeforeTheFirstStep) {
  const std::vector<float> parameters = random_values(kCount, 3);
  for (const std::string_view spec : {"rmsprop", "adam", "adamw", "adagrad"}) {
    EXPECT_EQ(significance_of(optimizer_of(spec), parameters), std::vector<float>(kCount, 0.0F)) << spec;
  }
  // The first step of Momentum takes the gradient whole; and AdaGrad may start with a moment.
  EXPECT_EQ(significance_of(optimizer_of("momentum:lr=0.5,dampening=0.75"), parameters),
            significance_of(optimizer_of("sgd:lr=0.5"), parameters));
  const auto out = significance_of(optimizer_of("adagrad:lr=0.5,eps=0,initial_accumulator=9"), parameters);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_FLOAT_EQ(out[i], 6 * parameters[i]);
  const auto half =
      significance_of(optimizer_of("adagrad:lr=0.5,eps=0,initial_accumulator=0.25"), parameters);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_FLOAT_EQ(half[i], parameters[i]);
}

TEST(Significance, IsZeroWhereItIsNotDefined) {
  const std::vector<float> parameters = random_values(kCount, 4);
  const std::vector<float> moment(kCount, 0.5F);
  const std::vector<float> zeros(kCount, 0.0F);
  const auto of = [&](std::string_view spec, const MomentsView& moments) {
    std::vector<float> out(kCount, 77.0F);
    EXPECT_TRUE(significance(*parse_optimizer(spec), parameters, moments, out)) << spec;
    return out;
  };
  EXPECT_EQ(of("sgd:lr=0", {}), zeros);
  EXPECT_EQ(of("momentum:lr=0", {1, moment, {}}), zeros);
  EXPECT_EQ(of("momentum:dampening=1", {1, moment, {}}), zeros);
  EXPECT_EQ(of("nesterov:lr=0", {1, moment, {}}), zeros);
  EXPECT_EQ(of("adagrad:lr=0", {1, {}, moment}), zeros);
  EXPECT_EQ(of("rmsprop:lr=0", {1, {}, moment}), zeros);
  EXPECT_EQ(of("adam:lr=0", {1, moment, moment}), zeros);
  EXPECT_EQ(of("adamw:lr=0", {1, moment, moment}), zeros);
  EXPECT_EQ(of("adam", {0, moment, moment}), zeros);  // moments that no step has made
  EXPECT_EQ(of("sgd:lr=1e-300", {}), zeros);          // theta / eta is beyond float32
  EXPECT_NE(of("adam", {1, moment, moment}), zeros);
}

TEST(Significance, IsZeroForElementsWithoutASecondMomentAndForWhatIsNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> parameters{1, 1, 1, nan, kInfinity, 3e38F, 1, 0, 1};
  const std::vector<float> second{4, 0, -0.0F, 4, 4, 4, nan, 4, -1};
  std::vector<float> out(parameters.size());
  ASSERT_TRUE(significance(*parse_optimizer("rmsprop:lr=0.5,eps=1"), parameters, {1, {}, second}, out));
  EXPECT_EQ(out, (std::vector<float>{6, 0, 0, 0, 0, 0, 0, 0, 0}));
  out.assign(out.size(), 77);
  ASSERT_TRUE(significance(*parse_optimizer("sgd:lr=0.5"), parameters, {}, out));
  EXPECT_EQ(out, (std::vector<float>{2, 2, 2, 0, 0, 0, 2, 0, 2}));
  // The largest number is one still.
  constexpr float kLargest = std::numeric_limits<float>::max();
  ASSERT_TRUE(significance(*parse_optimizer("sgd:lr=1"), std::vector<float>{kLargest, -kLargest}, {},
                           std::span(out).first(2)));
  EXPECT_EQ(out[0], kLargest);
  EXPECT_EQ(out[1], -kLargest);
}

// Adam's first moment is ignored where the second one isn't above 0.
TEST(Significance, IsZeroForAdamsElementsWithoutASecondMoment) {
  const std::vector<float> parameters{1, 1, 1, 1, 1, 1};
  const std::vector<float> first{2, 2, 2, 2, kInfinity, 0};
  const std::vector<float> second{4, 0, -0.0F, -1, 4, 0};
  for (const std::string_view kind : {"adam", "adamw"}) {
    std::vector<float> out(parameters.size(), 77.0F);
    const auto settings =
        *parse_optimizer(std::string(kind) + ":lr=0.5,beta1=0.5,beta2=0.5,eps=1,weight_decay=0");
    ASSERT_TRUE(significance(settings, parameters, {1, first, second}, out));
    // (theta (sqrt(4 / 0.5) + 1) (1 - 0.25) - 0.25 m) / 0.25.
    EXPECT_FLOAT_EQ(out[0], 3 * (std::sqrt(8.0F) + 1) - 2) << kind;
    for (std::size_t i = 1; i < out.size(); ++i) EXPECT_EQ(bits_of(out)[i], 0U) << kind << " [" << i << "]";
  }
}

TEST(Significance, DoesNotDependOnTheCallersFloatingPointMode) {
  for (const auto spec : kOptimizerSpecs) {
    Optimizer optimizer = optimizer_of(spec);
    std::vector<float> parameters = random_values(kCount, 5);
    ASSERT_TRUE(optimizer.step("w", parameters, random_values(kCount, 6)));
    for (float& value : parameters) value *= 1e-38F;  // subnormals among them
    const auto expected = significance_of(optimizer, parameters);
    const std::uint64_t before = FloatEnvironment::read_control();
    FloatEnvironment::write_control(before | FloatEnvironment::kFlushToZero | FloatEnvironment::kRoundUp);
    const std::uint64_t callers = FloatEnvironment::read_control();
    std::vector<float> out(kCount);
    const Status written = optimizer.significance("w", parameters, out);
    const std::uint64_t after = FloatEnvironment::read_control();
    FloatEnvironment::write_control(before);
    ASSERT_TRUE(written);
    EXPECT_EQ(after, callers);
    EXPECT_EQ(bits_of(out), bits_of(expected)) << spec;
  }
}

TEST(Significance, RefusesWhatDoesNotFit) {
  const std::vector<float> four(4, 1.0F);
  const std::vector<float> three(3, 1.0F);
  std::vector<float> out(4);
  const auto refusal = [&](std::string_view spec, const MomentsView& moments, std::span<float> to) {
    const Status written = significance(*parse_optimizer(spec), four, moments, to);
    if (written) return std::string("accepted");
    EXPECT_EQ(written.error().code, ErrorCode::kInvalidArgument);
    return written.error().message;
  };
  EXPECT_EQ(refusal("sgd", {}, std::span(out).first(3)), "the output has 3 values where the tensor has 4");
  EXPECT_EQ(refusal("momentum", {1, three, {}}, out), "the first moment has 3 values where the tensor has 4");
  EXPECT_EQ(refusal("adam", {1, four, three}, out), "the second moment has 3 values where the tensor has 4");
  std::vector<float> five(5, 1.0F);
  EXPECT_EQ(refusal("sgd", {}, five), "the output has 5 values where the tensor has 4");
  EXPECT_EQ(refusal("momentum", {1, five, {}}, out), "the first moment has 5 values where the tensor has 4");
  EXPECT_EQ(refusal("sgd", {1, four, {}}, out), "this optimizer keeps no first moment; give none");
  EXPECT_EQ(refusal("momentum", {1, {}, four}, out), "this optimizer keeps no second moment; give none");
  EXPECT_EQ(refusal("adam", {1, {}, four}, out), "one of Adam's two moments is missing; give both or none");
  OptimizerSettings bad;
  bad.learning_rate = -1;
  EXPECT_FALSE(significance(bad, four, {}, out));
}

}  // namespace
}  // namespace deltawire::significance_test
