// The arithmetic of low-rank approximation: a matrix M of rows x columns as the product of two factors,
// P (rows x rank) and Q (columns x rank). Vogels, Karimireddy, Jaggi, "PowerSGD" (NeurIPS 2019), algorithm 1.
//
// M lies row after row, a factor column after column. Every sum has one order, which
// docs/design/determinism.md states, so that all machines get the same bits. REQUIRES: a FloatEnvironment.
#pragma once

#include <cstdint>
#include <span>

#include "base/random.h"

namespace deltawire::low_rank {

inline constexpr std::uint32_t kMaxRank = 32;

// No element of M or Q is larger: then no product of factors overflows.
inline constexpr float kMost = 0x1p121F;

struct Shape {
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint32_t rank = 0;

  std::uint64_t elements() const noexcept { return rows * columns; }
  std::uint64_t p_elements() const noexcept { return rank * rows; }
  std::uint64_t q_elements() const noexcept { return rank * columns; }
  bool operator==(const Shape&) const = default;
};

// Whether the factors have fewer elements than the matrix. REQUIRES: the elements of both fit into 64 bits.
inline bool is_smaller(const Shape& shape) noexcept {
  return shape.p_elements() + shape.q_elements() < shape.elements();
}

// Near normal: sums of four uniform numbers, which no machine's library rounds differently.
void draw(const CounterRng& random, std::span<float> values) noexcept;

// Whether all are finite and none is above kMost in magnitude.
bool all_within(std::span<const float> values) noexcept;

// What earlier steps have left of M: factor * (kept - P Q^T).
struct Left {
  const float* kept = nullptr;  // rows x columns
  const float* p = nullptr;     // null: nothing is subtracted
  const float* q = nullptr;
  double factor = 1;
};

// out = input + what is left; false if an element would not be within kMost: it is left out of `out`. `out`
// may be `kept`.
bool add(const Shape& shape, const float* input, const Left& left, float* out) noexcept;

// out = what is left.
void take(const Shape& shape, const Left& left, float* out) noexcept;

// P = M Q.
void multiply(const Shape& shape, const float* m, const float* q, float* p) noexcept;

// Q = M^T P.
void multiply_transposed(const Shape& shape, const float* m, const float* p, float* q) noexcept;

// M = P Q^T.
void multiply_factors(const Shape& shape, const float* p, const float* q, float* m) noexcept;

// Makes P's columns orthonormal, by Gram-Schmidt, each cleared of those before it twice. A column that is a
// combination of those before it, zeros for one, is replaced by one drawn from `seed`: P always has full
// rank, and a direction that one step has no use for can serve the next. REQUIRES: finite values.
void orthonormalize(const Shape& shape, float* p, std::uint64_t seed) noexcept;

// Multiplies each of Q's columns by a power of two, so that its largest element is in [0.5, 1). A column of
// zeros stays.
void normalize_exponents(const Shape& shape, float* q) noexcept;

}  // namespace deltawire::low_rank
