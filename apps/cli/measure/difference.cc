#include "cli/measure/difference.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace deltawire::cli {
namespace {

// The upper ends of the classes between the first and the last, exactly as they are printed.
constexpr std::array<double, Difference::kClasses - 2> kEnds = {1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2,
                                                                1e-1, 1e0,  1e1,  1e2,  1e3,  1e4};

std::size_t class_of(double error) noexcept {
  if (error == 0) return 0;
  return 1 + static_cast<std::size_t>(std::ranges::upper_bound(kEnds, error) - kEnds.begin());
}

}  // namespace

void Difference::add(const double* a, const double* b, std::uint64_t count) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
      const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
      if (!same && not_finite_different_ == 0) first_not_finite_different_ = count_ + i;
      ++(same ? not_finite_equal_ : not_finite_different_);
      continue;
    }
    const double error = std::abs(b[i] - a[i]);
    squares_a_ += a[i] * a[i];
    squares_b_ += b[i] * b[i];
    product_ += a[i] * b[i];
    squares_difference_ += error * error;
    ++histogram_[class_of(error)];
    if (error > largest_) {
      largest_ = error;
      largest_at_ = count_ + i;
      a_there_ = a[i];
      b_there_ = b[i];
    }
  }
  count_ += count;
}

double Difference::relative_l2() const noexcept {
  return squares_difference_ == 0 ? 0 : std::sqrt(squares_difference_ / squares_a_);
}

double Difference::cosine() const noexcept {
  return squares_difference_ == 0 && squares_a_ > 0
             ? 1
             : product_ / std::sqrt(squares_a_) / std::sqrt(squares_b_);
}

std::string class_name(std::size_t index) {
  char text[64];
  if (index == 0) return "equal";
  if (index == 1) {
    std::snprintf(text, sizeof text, "below %.0e", kEnds.front());
  } else if (index == Difference::kClasses - 1) {
    std::snprintf(text, sizeof text, "%.0e or more", kEnds.back());
  } else {
    std::snprintf(text, sizeof text, "%.0e to %.0e", kEnds[index - 2], kEnds[index - 1]);
  }
  return text;
}

}  // namespace deltawire::cli
