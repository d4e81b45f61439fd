#include "linear/objective.h"

#include <cmath>

#include <gtest/gtest.h>

namespace deltawire::linear {
namespace {

constexpr Loss kAll[] = {Loss::kLogistic, Loss::kSquared, Loss::kHinge, Loss::kSquaredHinge};

TEST(Objective, EachLossIsKnownByItsName) {
  for (const Loss loss : kAll) EXPECT_EQ(find_loss(loss_name(loss)), loss);
  EXPECT_FALSE(find_loss("absolute"));
}

TEST(Objective, LossesAreThoseOfTable3) {
  EXPECT_DOUBLE_EQ(loss_of(Loss::kLogistic, 0.5, -1), std::log(1 + std::exp(0.5)));
  EXPECT_DOUBLE_EQ(loss_of(Loss::kLogistic, 800, -1), 800) << "no overflow";
  EXPECT_DOUBLE_EQ(loss_of(Loss::kSquared, 3, 5), 2);
  EXPECT_DOUBLE_EQ(loss_of(Loss::kHinge, 0.25, -1), 1.25);
  EXPECT_DOUBLE_EQ(loss_of(Loss::kHinge, 2, 1), 0);
  EXPECT_DOUBLE_EQ(loss_of(Loss::kSquaredHinge, -1, 1), 2);
}

TEST(Objective, SlopesAreTheDerivativesOfTheLosses) {
  constexpr double kStep = 1e-6;
  for (const Loss loss : kAll) {
    for (const double target : {-1.0, 1.0}) {
      for (const double margin : {-2.3, -0.4, 0.7, 3.1}) {
        const double rise = loss_of(loss, margin + kStep, target) - loss_of(loss, margin - kStep, target);
        EXPECT_NEAR(slope_of(loss, margin, target), rise / (2 * kStep), 1e-6)
            << loss_name(loss) << " at " << margin << " for " << target;
      }
    }
  }
}

TEST(Objective, ProbabilitiesDoNotOverflow) {
  EXPECT_DOUBLE_EQ(probability_of(0), 0.5);
  EXPECT_DOUBLE_EQ(probability_of(2), 1 / (1 + std::exp(-2.0)));
  EXPECT_DOUBLE_EQ(probability_of(-2), 1 / (1 + std::exp(2.0)));
  EXPECT_EQ(probability_of(1e4), 1);
  EXPECT_EQ(probability_of(-1e4), 0);
}

TEST(Objective, ALabelOf0IsTheOtherClassOnlyWhereThereAreClasses) {
  EXPECT_EQ(target_of(Loss::kLogistic, 0), -1);
  EXPECT_EQ(target_of(Loss::kHinge, 1), 1);
  EXPECT_EQ(target_of(Loss::kSquared, 0), 0);
}

}  // namespace
}  // namespace deltawire::linear
