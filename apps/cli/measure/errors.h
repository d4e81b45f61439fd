// The distance between values and what became of them: the figures of `deltawire compare`.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace deltawire::cli {

// error / whole, where 0 / 0 is 0 and x / 0 infinite: relative errors of an input of zeros.
inline double share_of(double error, double whole) {
  if (whole != 0) return error / whole;
  return error == 0 ? 0 : std::copysign(std::numeric_limits<double>::infinity(), error);
}

// Sums over values, in double. Skips inputs that are NaN or Inf. A finite input that decoded to NaN or Inf
// has an infinite error.
class ErrorSums {
 public:
  // REQUIRES: as many decoded values as inputs.
  void add(std::span<const float> decoded, std::span<const float> input) {
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

  // Adds another sum `weight` times: the mean of n is 1/n of each.
  void add(const ErrorSums& other, double weight) {
    difference_ += weight * other.difference_;
    magnitude_ += weight * other.magnitude_;
    squared_error_ += weight * other.squared_error_;
    squared_input_ += weight * other.squared_input_;
    squared_decoded_ += weight * other.squared_decoded_;
    product_ += weight * other.product_;
    largest_ = std::max(largest_, other.largest_);
  }

  // ||decoded - input|| / ||input||. For an input of zeros: 0 if all decoded to 0, else infinite.
  double relative_l2() const { return std::sqrt(share_of(squared_error_, squared_input_)); }

  // decoded . input / (||decoded|| ||input||); 1 if both are zeros, 0 if one is.
  double cosine() const {
    if (squared_input_ == 0 && squared_decoded_ == 0) return 1;
    if (squared_input_ == 0 || squared_decoded_ == 0) return 0;
    return product_ / std::sqrt(squared_input_) / std::sqrt(squared_decoded_);
  }

  // max |decoded - input|
  double max_error() const { return largest_; }

  // mean(decoded - input) / mean|input|: 0.01 means that a hundredth of the mean magnitude was added to
  // each value.
  double bias() const { return share_of(difference_, magnitude_); }

  // decoded . input / ||input||^2: the part of the input that arrived, 1 without bias. 1 for zeros.
  double gain() const { return squared_input_ == 0 ? 1 : product_ / squared_input_; }

  double input_norm() const { return std::sqrt(squared_input_); }

 private:
  double difference_ = 0;  // sum of decoded - input
  double magnitude_ = 0;   // sum of |input|
  double squared_error_ = 0;
  double squared_input_ = 0;
  double squared_decoded_ = 0;
  double product_ = 0;
  double largest_ = 0;
};

}  // namespace deltawire::cli
