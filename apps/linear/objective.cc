#include "linear/objective.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace deltawire::linear {
namespace {

constexpr std::array<std::pair<Loss, std::string_view>, 4> kNames{{{Loss::kLogistic, "logistic"},
                                                                   {Loss::kSquared, "squared"},
                                                                   {Loss::kHinge, "hinge"},
                                                                   {Loss::kSquaredHinge, "squared-hinge"}}};

}  // namespace

std::optional<Loss> find_loss(std::string_view name) noexcept {
  for (const auto& [loss, own] : kNames) {
    if (own == name) return loss;
  }
  return std::nullopt;
}

std::string_view loss_name(Loss loss) noexcept {
  for (const auto& [each, own] : kNames) {
    if (each == loss) return own;
  }
  return "unknown";
}

double loss_of(Loss loss, double margin, double target) noexcept {
  const double short_of_one = std::max(0.0, 1 - target * margin);
  switch (loss) {
    case Loss::kLogistic: {
      const double agreement = target * margin;
      return std::max(0.0, -agreement) + std::log1p(std::exp(-std::fabs(agreement)));
    }
    case Loss::kSquared: return 0.5 * (margin - target) * (margin - target);
    case Loss::kHinge: return short_of_one;
    case Loss::kSquaredHinge: return 0.5 * short_of_one * short_of_one;
  }
  return 0;
}

double slope_of(Loss loss, double margin, double target) noexcept {
  const double short_of_one = std::max(0.0, 1 - target * margin);
  switch (loss) {
    case Loss::kLogistic: return -target * probability_of(-target * margin);
    case Loss::kSquared: return margin - target;
    case Loss::kHinge: return short_of_one > 0 ? -target : 0;
    case Loss::kSquaredHinge: return -target * short_of_one;
  }
  return 0;
}

double probability_of(double margin) noexcept {
  const double e = std::exp(-std::fabs(margin));
  return (margin >= 0 ? 1 : e) / (1 + e);
}

}  // namespace deltawire::linear
