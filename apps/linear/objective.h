// The losses of FastSGD's table 3, as functions of a row's margin z = w.x and its label y:
//
//   logistic       log(1 + exp(-y z)), y = -1 or +1            (label 0 means -1)
//   squared        (z - y)^2 / 2, y any number
//   hinge          max(0, 1 - y z), y = -1 or +1               (SVM)
//   squared-hinge  max(0, 1 - y z)^2 / 2
//
// Training minimizes the mean over all rows, plus l2 / 2 times the sum of squares of all weights. The paper
// writes sums; with the mean, learning rates do not depend on the number of rows. The paper's gradient of
// linear regression is that of half the square.
//
// Source: K. Yang et al., "FastSGD: A Fast Compressed SGD Framework for Distributed Machine Learning",
// section 4.1, table 3.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace deltawire::linear {

enum class Loss : std::uint8_t { kLogistic, kSquared, kHinge, kSquaredHinge };

std::optional<Loss> find_loss(std::string_view name) noexcept;
std::string_view loss_name(Loss loss) noexcept;
inline bool classifies(Loss loss) noexcept {
  return loss != Loss::kSquared;
}

// The label as the loss uses it.
inline double target_of(Loss loss, float label) noexcept {
  return classifies(loss) && label == 0 ? -1.0 : static_cast<double>(label);
}

double loss_of(Loss loss, double margin, double target) noexcept;

// d loss / d margin.
double slope_of(Loss loss, double margin, double target) noexcept;

// 1 / (1 + exp(-margin)), without overflow.
double probability_of(double margin) noexcept;

}  // namespace deltawire::linear
