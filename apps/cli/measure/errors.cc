#include "cli/measure/errors.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <limits>

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

double share_of(double error, double whole) {
  if (whole != 0) return error / whole;
  return error == 0 ? 0 : std::copysign(std::numeric_limits<double>::infinity(), error);
}

void ErrorSums::add(std::span<const float> decoded, std::span<const float> input) {
  for (std::size_t i = 0; i < input.size(); ++i) {
    const double x = input[i];
    if (!std::isfinite(x)) continue;
    const double y = decoded[i];
    const double error = std::isfinite(y) ? y - x : std::numeric_limits<double>::infinity();
    difference_ += error;
    magnitude_ += std::abs(x);
    squared_error_ += error * error;
    squared_input_ += x * x;
    squared_decoded_ += y * y;
    product_ += x * y;
    largest_ = std::max(largest_, std::abs(error));
  }
}

void ErrorSums::add(const ErrorSums& other, double weight) {
  difference_ += weight * other.difference_;
  magnitude_ += weight * other.magnitude_;
  squared_error_ += weight * other.squared_error_;
  squared_input_ += weight * other.squared_input_;
  squared_decoded_ += weight * other.squared_decoded_;
  product_ += weight * other.product_;
  largest_ = std::max(largest_, other.largest_);
}

double ErrorSums::relative_l2() const {
  return std::sqrt(share_of(squared_error_, squared_input_));
}

double ErrorSums::cosine() const {
  if (squared_input_ == 0 && squared_decoded_ == 0) return 1;
  if (squared_input_ == 0 || squared_decoded_ == 0) return 0;
  return product_ / std::sqrt(squared_input_) / std::sqrt(squared_decoded_);
}

double ErrorSums::bias() const {
  return share_of(difference_, magnitude_);
}

double ErrorSums::input_norm() const {
  return std::sqrt(squared_input_);
}

double ErrorSums::gain() const {
  return squared_input_ == 0 ? 1 : product_ / squared_input_;
}

void Difference::add(const double* a, const double* b, std::uint64_t count) noexcept {
  // Of files that lose next to nothing most values are equal, and only the sums grow.
  std::uint64_t equal = 0;
  double squares_a = squares_a_;
  double squares_b = squares_b_;
  double product = product_;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (a[i] == b[i] && std::isfinite(a[i])) {
      squares_a += a[i] * a[i];
      squares_b += b[i] * b[i];
      product += a[i] * b[i];
      ++equal;
      continue;
    }
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) {
      const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
      if (!same && not_finite_different_ == 0) first_not_finite_different_ = count_ + i;
      ++(same ? not_finite_equal_ : not_finite_different_);
      continue;
    }
    const double error = std::abs(b[i] - a[i]);
    squares_a += a[i] * a[i];
    squares_b += b[i] * b[i];
    product += a[i] * b[i];
    squares_difference_ += error * error;
    ++histogram_[class_of(error)];
    if (error > largest_) {
      largest_ = error;
      largest_at_ = count_ + i;
      a_there_ = a[i];
      b_there_ = b[i];
    }
  }
  squares_a_ = squares_a;
  squares_b_ = squares_b;
  product_ = product;
  histogram_[0] += equal;
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
