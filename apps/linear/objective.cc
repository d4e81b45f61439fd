#include "linear/objective.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace deltawire::linear {
namespace {

constexpr std::array<std::string_view, 4> kNames{"logistic", "squared", "hinge", "squared-hinge"};

}  // namespace

std::optional<Loss> find_loss(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Loss>(found - kNames.begin());
}

std::string_view loss_name(Loss loss) noexcept {
  return kNames[static_cast<std::size_t>(loss)];
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
