#include "cli/measure/errors.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace deltawire::cli {
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

}  // namespace deltawire::cli
