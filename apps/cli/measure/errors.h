// The distance between values and what became of them: the figures of `deltawire compare` for float32, and
// those of `deltawire diff` for float64.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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

// error / whole, where 0 / 0 is 0 and x / 0 infinite: relative errors of an input of zeros.
double share_of(double error, double whole);

// Sums over pairs of values, added in blocks. float64 holds every other type exactly.
class Difference {
 public:
  // The classes of |b - a|, by powers of ten; class_name() names them.
  static constexpr std::size_t kClasses = 15;

  void add(const double* a, const double* b, std::uint64_t count) noexcept;

  std::uint64_t count() const noexcept { return count_; }
  std::uint64_t different() const noexcept { return count_ - histogram_[0] - not_finite_equal_; }
  bool equal() const noexcept { return different() == 0; }

  // Over the pairs in which both values are finite. If `a` is all zeros and `b` is not, relative_l2 is
  // infinite and cosine NaN.
  double relative_l2() const noexcept;  // |b - a| / |a|
  double cosine() const noexcept;       // a . b / (|a| |b|)

  // The largest |b - a|, and where: its index, and both values.
  double largest() const noexcept { return largest_; }
  std::uint64_t largest_at() const noexcept { return largest_at_; }
  double a_there() const noexcept { return a_there_; }
  double b_there() const noexcept { return b_there_; }

  // Pairs in which a value is NaN or infinite. Two NaN, or twice the same infinity, are no difference.
  std::uint64_t not_finite() const noexcept { return not_finite_equal_ + not_finite_different_; }
  std::uint64_t not_finite_different() const noexcept { return not_finite_different_; }
  std::uint64_t first_not_finite_different() const noexcept { return first_not_finite_different_; }

  const std::array<std::uint64_t, kClasses>& histogram() const noexcept { return histogram_; }

 private:
  std::uint64_t count_ = 0;
  double squares_a_ = 0;
  double squares_b_ = 0;
  double product_ = 0;
  double squares_difference_ = 0;
  double largest_ = 0;
  std::uint64_t largest_at_ = 0;
  double a_there_ = 0;
  double b_there_ = 0;
  std::uint64_t not_finite_equal_ = 0;
  std::uint64_t not_finite_different_ = 0;
  std::uint64_t first_not_finite_different_ = 0;
  std::array<std::uint64_t, kClasses> histogram_{};
};

// "equal", "below 1e-08", "1e-08 to 1e-07", "1e+04 or more".
std::string class_name(std::size_t index);

}  // namespace deltawire::cli
