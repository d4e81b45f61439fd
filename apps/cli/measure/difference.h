// How far two arrays are apart: what `deltawire diff` says.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace deltawire::cli {

// Sums over pairs of values, fed in blocks. Values are float64, which holds the others' exactly.
class Difference {
 public:
  // |b - a| by powers of ten, as class_name says.
  static constexpr std::size_t kClasses = 15;

  void add(const double* a, const double* b, std::uint64_t count) noexcept;

  std::uint64_t count() const noexcept { return count_; }
  std::uint64_t different() const noexcept { return count_ - histogram_[0] - not_finite_equal_; }
  bool equal() const noexcept { return different() == 0; }

  // Of pairs in which both are finite. NaN where nothing can be said: relative_l2 of an `a` without length
  // that differs is infinite, cosine of one without length is NaN.
  double relative_l2() const noexcept;  // |b - a| / |a|
  double cosine() const noexcept;       // a . b / (|a| |b|)

  // The largest |b - a|, and where: its index, and both values.
  double largest() const noexcept { return largest_; }
  std::uint64_t largest_at() const noexcept { return largest_at_; }
  double a_there() const noexcept { return a_there_; }
  double b_there() const noexcept { return b_there_; }

  // Pairs in which one is NaN or infinite; equal ones (both NaN, or the same infinity) are no difference.
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
