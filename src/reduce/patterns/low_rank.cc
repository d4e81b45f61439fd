#include "reduce/patterns/low_rank.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstring>

namespace deltawire::low_rank {
namespace {

// Wide enough for one instruction of every CPU; what a compiler makes of it changes no sum.
using Four = float __attribute__((vector_size(16)));

[[gnu::always_inline]] inline Four four_at(const float* at) noexcept {
  Four values;
  std::memcpy(&values, at, sizeof values);
  return values;
}

constexpr std::uint64_t kLanes = 8;          // of a sum along a row
constexpr std::uint64_t kBlockRows = 16;     // of a sum down a column
constexpr std::uint64_t kStrip = 256;        // columns whose rows of a block stay in the first cache
constexpr std::uint64_t kBlockColumns = 16;  // of a product of factors

// Lane l has the elements l, l + 8, l + 16 ...
float sum_of(const std::array<float, kLanes>& lanes) noexcept {
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// Of a row with so many columns of Q, which lie `columns` apart.
template <std::uint32_t kCount>
void dot(const float* row, const float* q, std::uint64_t columns, std::array<float, kCount>& sums) noexcept {
  Four low[kCount] = {};
  Four high[kCount] = {};
  std::uint64_t j = 0;
  for (; j + kLanes <= columns; j += kLanes) {
    const Four first = four_at(row + j);
    const Four second = four_at(row + j + 4);
    for (std::uint32_t k = 0; k < kCount; ++k) {
      low[k] += first * four_at(q + k * columns + j);
      high[k] += second * four_at(q + k * columns + j + 4);
    }
  }
  for (std::uint32_t k = 0; k < kCount; ++k) {
    std::array<float, kLanes> lanes;
    std::memcpy(lanes.data(), &low[k], sizeof low[k]);
    std::memcpy(lanes.data() + 4, &high[k], sizeof high[k]);
    for (std::uint64_t rest = j; rest < columns; ++rest) {
      lanes[rest - j] += row[rest] * q[k * columns + rest];
    }
    sums[k] = sum_of(lanes);
  }
}

// Row `row` of P, so many of its columns.
template <std::uint32_t kCount>
void multiply_row(const Shape& shape, std::uint64_t row, const float* m, const float* q, float* p) noexcept {
  std::array<float, kCount> sums;
  dot<kCount>(m + row * shape.columns, q, shape.columns, sums);
  for (std::uint32_t k = 0; k < kCount; ++k) p[k * shape.rows + row] = sums[k];
}

// Rows of one block, and columns of one strip.
struct Block {
  std::uint64_t first_row, end_row;
  std::uint64_t first_column, end_column;
};

template <std::uint32_t kCount>
void add_block(const Shape& shape, const Block& block, const float* m, const float* p, float* q) noexcept {
  std::uint64_t j = block.first_column;
  for (; j + 8 <= block.end_column; j += 8) {
    Four low[kCount] = {};
    Four high[kCount] = {};
    for (std::uint64_t i = block.first_row; i < block.end_row; ++i) {
      const Four first = four_at(m + i * shape.columns + j);
      const Four second = four_at(m + i * shape.columns + j + 4);
      for (std::uint32_t k = 0; k < kCount; ++k) {
        low[k] += p[k * shape.rows + i] * first;
        high[k] += p[k * shape.rows + i] * second;
      }
    }
    for (std::uint32_t k = 0; k < kCount; ++k) {
      float* at = q + k * shape.columns + j;
      low[k] = four_at(at) + low[k];
      high[k] = four_at(at + 4) + high[k];
      std::memcpy(at, &low[k], sizeof low[k]);
      std::memcpy(at + 4, &high[k], sizeof high[k]);
    }
  }
  for (; j < block.end_column; ++j) {
    for (std::uint32_t k = 0; k < kCount; ++k) {
      float sum = 0;
      for (std::uint64_t i = block.first_row; i < block.end_row; ++i) {
        sum += p[k * shape.rows + i] * m[i * shape.columns + j];
      }
      q[k * shape.columns + j] += sum;
    }
  }
}

// Hands the elements of row `row` of P Q^T to store(column, elements, count), a few at a time. Without P they
// are zeros.
[[gnu::always_inline]] inline void each_of_row(const Shape& shape, std::uint64_t row, const float* p,
                                               const float* q, auto store) noexcept {
  const std::uint32_t rank = p == nullptr ? 0 : shape.rank;
  assert(rank <= kMaxRank);
  std::array<float, kMaxRank> own;  // together: a line of the cache for each column of P is too many
  for (std::uint32_t k = 0; k < rank; ++k) own[k] = p[k * shape.rows + row];
  std::uint64_t j = 0;
  for (; j + kBlockColumns <= shape.columns; j += kBlockColumns) {
    Four sums[kBlockColumns / 4] = {};
    for (std::uint32_t k = 0; k < rank; ++k) {
      const float* at = q + k * shape.columns + j;
      for (std::uint64_t v = 0; v < kBlockColumns / 4; ++v) {
        sums[v] += own[k] * four_at(at + 4 * v);
      }
    }
    float values[kBlockColumns];
    std::memcpy(values, sums, sizeof values);
    store(j, values, kBlockColumns);
  }
  for (; j < shape.columns; ++j) {
    float sum = 0;
    for (std::uint32_t k = 0; k < rank; ++k) sum += own[k] * q[k * shape.columns + j];
    store(j, &sum, 1);
  }
}

template <bool kScaled>
[[gnu::always_inline]] inline float left_of(float kept, float product, double factor) noexcept {
  const float left = kept - product;
  return kScaled ? static_cast<float>(static_cast<double>(left) * factor) : left;
}

template <bool kScaled>
bool add_left(const Shape& shape, const float* input, const Left& left, float* out) noexcept {
  std::uint32_t outside = 0;
  for (std::uint64_t i = 0; i < shape.rows; ++i) {
    const std::uint64_t row = i * shape.columns;
    each_of_row(shape, i, left.p, left.q, [&](std::uint64_t j, const float* product, std::uint64_t count) {
      const std::uint64_t at = row + j;
      for (std::uint64_t t = 0; t < count; ++t) {
        const float rest = left_of<kScaled>(left.kept[at + t], product[t], left.factor);
        const float sum = input[at + t] + rest;
        const bool within = std::abs(sum) <= kMost;
        outside |= within ? 0U : 1U;
        const float instead = std::abs(rest) <= kMost ? rest : 0.0F;
        out[at + t] = within ? sum : instead;
      }
    });
  }
  return outside == 0;
}

constexpr double kDependent = 0x1p-20;  // of a column's length, when no more is left of it

double dot(const float* a, const float* b, std::uint64_t count) noexcept {
  std::array<double, 4> lanes{};
  std::uint64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    for (std::uint64_t l = 0; l < 4; ++l) {
      lanes[l] += static_cast<double>(a[i + l]) * static_cast<double>(b[i + l]);
    }
  }
  for (std::uint64_t l = 0; i + l < count; ++l) {
    lanes[l] += static_cast<double>(a[i + l]) * static_cast<double>(b[i + l]);
  }
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

void scale(float* column, std::uint64_t count, double factor) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    column[i] = static_cast<float>(static_cast<double>(column[i]) * factor);
  }
}

// Clears column k of those before it, which are orthonormal, and gives it the length 1; false if too little
// is left of it.
bool clear(float* p, std::uint64_t rows, std::uint32_t k) noexcept {
  float* column = p + k * rows;
  double length = std::sqrt(dot(column, column, rows));
  if (!(length > 0)) return false;
  for (int pass = 0; pass < 2; ++pass) {
    scale(column, rows, 1 / length);
    for (std::uint32_t l = 0; l < k; ++l) {
      const float* other = p + l * rows;
      const double share = dot(column, other, rows);
      for (std::uint64_t i = 0; i < rows; ++i) {
        column[i] =
            static_cast<float>(static_cast<double>(column[i]) - share * static_cast<double>(other[i]));
      }
    }
    length = std::sqrt(dot(column, column, rows));
    if (length <= kDependent) return false;
  }
  scale(column, rows, 1 / length);
  return true;
}

}  // namespace

void draw(const CounterRng& random, std::span<float> values) noexcept {
  for (std::uint64_t i = 0; i < values.size(); ++i) {
    const std::uint64_t bits = random.at(i);
    const std::uint64_t sum = (bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48);
    // A whole number below 2^18, less its mean, which is 2 * 0xFFFF: exact in float.
    values[i] = (static_cast<float>(sum) - 0x1.FFFEp16F) * 0x1p-16F;
  }
}

bool all_within(std::span<const float> values) noexcept {
  std::uint32_t outside = 0;
  for (const float value : values) outside |= std::abs(value) <= kMost ? 0U : 1U;
  return outside == 0;
}

bool add(const Shape& shape, const float* input, const Left& left, float* out) noexcept {
  return left.factor == 1 ? add_left<false>(shape, input, left, out)
                          : add_left<true>(shape, input, left, out);
}

void take(const Shape& shape, const Left& left, float* out) noexcept {
  for (std::uint64_t i = 0; i < shape.rows; ++i) {
    const std::uint64_t row = i * shape.columns;
    each_of_row(shape, i, left.p, left.q, [&](std::uint64_t j, const float* product, std::uint64_t count) {
      for (std::uint64_t t = 0; t < count; ++t) {
        out[row + j + t] = left_of<true>(left.kept[row + j + t], product[t], left.factor);
      }
    });
  }
}

void multiply(const Shape& shape, const float* m, const float* q, float* p) noexcept {
  for (std::uint64_t i = 0; i < shape.rows; ++i) {
    std::uint32_t k = 0;
    for (; k + 4 <= shape.rank; k += 4) {
      multiply_row<4>(shape, i, m, q + k * shape.columns, p + k * shape.rows);
    }
    for (; k < shape.rank; ++k) {
      multiply_row<1>(shape, i, m, q + k * shape.columns, p + k * shape.rows);
    }
  }
}

void multiply_transposed(const Shape& shape, const float* m, const float* p, float* q) noexcept {
  std::fill_n(q, shape.q_elements(), 0.0F);
  for (std::uint64_t row = 0; row < shape.rows; row += kBlockRows) {
    for (std::uint64_t column = 0; column < shape.columns; column += kStrip) {
      const Block block{row, std::min(row + kBlockRows, shape.rows), column,
                        std::min(column + kStrip, shape.columns)};
      std::uint32_t k = 0;
      for (; k + 4 <= shape.rank; k += 4) {
        add_block<4>(shape, block, m, p + k * shape.rows, q + k * shape.columns);
      }
      for (; k < shape.rank; ++k) {
        add_block<1>(shape, block, m, p + k * shape.rows, q + k * shape.columns);
      }
    }
  }
}

void multiply_factors(const Shape& shape, const float* p, const float* q, float* m) noexcept {
  for (std::uint64_t i = 0; i < shape.rows; ++i) {
    float* row = m + i * shape.columns;
    each_of_row(shape, i, p, q, [row](std::uint64_t j, const float* product, std::uint64_t count) {
      for (std::uint64_t t = 0; t < count; ++t) row[j + t] = product[t];
    });
  }
}

void orthonormalize(const Shape& shape, float* p, std::uint64_t seed) noexcept {
  assert(shape.rank <= kMaxRank && shape.rank <= shape.rows);
  for (std::uint32_t k = 0; k < shape.rank; ++k) {
    for (std::uint64_t attempt = 0; !clear(p, shape.rows, k); ++attempt) {
      draw(CounterRng(seed, attempt * kMaxRank + k), {p + k * shape.rows, shape.rows});
    }
  }
}

void normalize_exponents(const Shape& shape, float* q) noexcept {
  for (std::uint32_t k = 0; k < shape.rank; ++k) {
    float* column = q + k * shape.columns;
    std::uint32_t largest = 0;  // the bits of magnitudes are ordered as these
    for (std::uint64_t j = 0; j < shape.columns; ++j) {
      largest = std::max(largest, std::bit_cast<std::uint32_t>(column[j]) & 0x7FFFFFFF);
    }
    int exponent = 0;
    (void)std::frexp(std::bit_cast<float>(largest), &exponent);
    scale(column, shape.columns, std::ldexp(1.0, -exponent));
  }
}

}  // namespace deltawire::low_rank
