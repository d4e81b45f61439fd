// The distance between values and what became of them: the figures of `deltawire compare`.
#pragma once

#include <span>

namespace deltawire::cli {

// Sums over values, in double. Skips inputs that are NaN or Inf. A finite input that decoded to NaN or Inf
// has an infinite error.
class ErrorSums {
 public:
  // REQUIRES: as many decoded values as inputs.
  void add(std::span<const float> decoded, std::span<const float> input);

  // Adds another sum `weight` times: the mean of n is 1/n of each.
  void add(const ErrorSums& other, double weight);

  // ||decoded - input|| / ||input||. For an input of zeros: 0 if all decoded to 0, else infinite.
  double relative_l2() const;

  // decoded . input / (||decoded|| ||input||); 1 if both are zeros, 0 if one is.
  double cosine() const;

  // max |decoded - input|
  double max_error() const { return largest_; }

  // mean(decoded - input) / mean|input|: 0.01 means that a hundredth of the mean magnitude was added to
  // each value.
  double bias() const;

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

// error / whole, where 0 / 0 is 0 and x / 0 infinite: relative errors of an input of zeros.
double share_of(double error, double whole);

}  // namespace deltawire::cli
