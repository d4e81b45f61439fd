#include "linear/convergence.h"

#include <chrono>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "deltawire/connect.h"

namespace deltawire::linear::convergence_test {
namespace {

// A quadratic whose gap is known: l2 / 2 w^2 + floor, with its own l2 the bound is the gap itself.
TEST(GapBound, IsTheGapOfAQuadraticAndInfiniteWhereItSaysNothing) {
  constexpr double kL2 = 0.01;
  constexpr double kFloor = 0.5;
  const double w = 0.3;
  const double objective = kFloor + kL2 / 2 * w * w;
  EXPECT_NEAR(gap_bound(objective, kL2 * w * kL2 * w, kL2), objective / kFloor - 1, 1e-12);
  EXPECT_TRUE(std::isinf(gap_bound(0.1, 1, kL2)));
  EXPECT_TRUE(bounds_gap(Loss::kLogistic, kL2));
  EXPECT_FALSE(bounds_gap(Loss::kHinge, kL2));
  EXPECT_FALSE(bounds_gap(Loss::kSquared, 0));
}

TEST(GapEstimate, IsWhatTheSecondHalfChanged) {
  EXPECT_TRUE(std::isnan(gap_estimate(std::vector{3.0, 2.0, 1.0})));
  std::vector<double> objectives;
  for (int epoch = 1; epoch <= 40; ++epoch) objectives.push_back(1 + 1.0 / epoch);
  EXPECT_NEAR(gap_estimate(objectives), objectives.back() - 1, 1e-3);
}

TEST(LabelSums, TheBestConstantHasTheLeastLoss) {
  for (const Loss loss : {Loss::kLogistic, Loss::kSquared, Loss::kHinge, Loss::kSquaredHinge}) {
    LabelSums labels;
    for (int row = 0; row < 1000; ++row) labels.add(row < 30 ? 1 : -1);
    const double best = best_constant(loss, labels);
    const double least = loss_of_constant(loss, best, labels);
    for (const double step : {-0.1, 0.1}) {
      EXPECT_GT(loss_of_constant(loss, best + step, labels), least) << loss_name(loss);
    }
  }
  LabelSums numbers;
  for (const double target : {1.0, 2.0, 6.0}) numbers.add(target);
  EXPECT_DOUBLE_EQ(best_constant(Loss::kSquared, numbers), 3);
  EXPECT_NEAR(loss_of_constant(Loss::kSquared, 3, numbers), (4 + 1 + 9) / 6.0, 1e-12);
  EXPECT_TRUE(std::isnan(loss_of_constant(Loss::kSquared, 3, LabelSums())));
}

// Ranks' vectors that nearly cancel, as gradients near the minimum do: their own norms say nothing.
TEST(SquaredNormOfSum, IsOfTheSumAndHardlyTooLow) {
  for (const std::size_t size : {std::size_t{100}, std::size_t{200000}}) {
    std::vector<std::vector<double>> own(3, std::vector<double>(size));
    CounterRng random(7);
    double exact = 0;
    for (std::size_t i = 0; i < size; ++i) {
      for (auto& vector : own) vector[i] = random.next_uniform() - 0.5;
      const double rest = 0.01 * (random.next_uniform() - 0.5);
      own[2][i] = rest - own[0][i] - own[1][i];
      exact += (own[0][i] + own[1][i] + own[2][i]) * (own[0][i] + own[1][i] + own[2][i]);
    }
    std::vector<double> found(3);
    auto mesh = connect_inproc(3);
    ASSERT_TRUE(mesh) << mesh.error().message;
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        auto exchange = Exchange::open("gather(fp32)", std::move((*mesh)[rank]), 1, std::chrono::seconds(20));
        ASSERT_TRUE(exchange) << exchange.error().message;
        const auto squares = squared_norm_of_sum(own[rank], **exchange);
        ASSERT_TRUE(squares) << squares.error().message;
        found[rank] = *squares;
        (*exchange)->close();
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(found[0], found[1]);
    EXPECT_EQ(found[0], found[2]);
    if (size == 100) {
      EXPECT_NEAR(found[0], exact, 1e-9 * exact);
    } else {
      EXPECT_GT(found[0], exact);
      EXPECT_LT(found[0], 1.25 * exact);
    }
  }
}

}  // namespace
}  // namespace deltawire::linear::convergence_test
