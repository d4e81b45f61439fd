// How far decoded values are from what was encoded.
#pragma once

#include <span>

namespace deltawire::cli {

// Sums over values, in double. Inputs that are NaN or Inf are left out; where a finite one came back as NaN
// or Inf, it is infinitely far away.
class ErrorSums {
 public:
  // REQUIRES: as many decoded values as inputs.
  void add(std::span<const float> decoded, std::span<const float> input);

  // What was summed up elsewhere, `weight` times: the mean of n is 1/n of each.
  void add(const ErrorSums& other, double weight);

  // ||decoded - input|| / ||input||. Of zeros: 0 where all came back, else infinite.
  double relative_l2() const;

  // decoded . input / (||decoded|| ||input||); 1 where both are zeros, 0 where one is.
  double cosine() const;

  // max |decoded - input|
  double max_error() const { return largest_; }

  // mean(decoded - input) / mean|input|: 0.01 is a hundredth of a usual value, added to each.
  double bias() const;

  // decoded . input / ||input||^2: how much of the input is there, 1 without bias. Of zeros: 1.
  double gain() const;

  double input_norm() const;

 private:
  double difference_ = 0;  // sum of decoded - input
  double magnitude_ = 0;   // sum of |input|
  double squared_error_ = 0;
  double squared_input_ = 0;
  double squared_decoded_ = 0;
  double product_ = 0;
  double largest_ = 0;
};

// 0 / 0 is 0, and x / 0 infinite: of errors relative to an input of zeros.
double share_of(double error, double whole);

}  // namespace deltawire::cli
