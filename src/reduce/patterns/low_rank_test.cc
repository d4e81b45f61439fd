// The arithmetic of factors, against its definition in plain loops (docs/design/determinism.md).
#include "reduce/patterns/low_rank.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace deltawire::low_rank_test {
namespace {

using low_rank::Shape;
using Values = std::vector<float>;

Values random_values(std::uint64_t count, std::uint64_t seed) {
  CounterRng random(seed);
  Values values(count);
  for (float& value : values) value = static_cast<float>(random.next_uniform() - 0.5);
  return values;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{1, 1, 1},   {2, 7, 1},   {7, 8, 2},    {16, 9, 3},    {17, 16, 4},
                                      {33, 15, 5}, {40, 31, 8}, {65, 257, 7}, {50, 600, 32}, {3, 1000, 2}};
  return all;
}

float sum_of_eight(const Values& row, const float* q) {
  float lanes[8] = {};
  for (std::size_t j = 0; j < row.size(); ++j) lanes[j % 8] += row[j] * q[j];
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

float element_of(const Shape& shape, const Values& p, const Values& q, std::uint64_t i, std::uint64_t j) {
  float sum = 0;
  for (std::uint32_t k = 0; k < shape.rank; ++k) sum += p[k * shape.rows + i] * q[k * shape.columns + j];
  return sum;
}

TEST(LowRank, MultipliesInTheStatedOrder) {
  for (const Shape& shape : shapes()) {
    const Values m = random_values(shape.elements(), 1);
    const Values q = random_values(shape.q_elements(), 2);
    Values p(shape.p_elements());
    low_rank::multiply(shape, m.data(), q.data(), p.data());
    for (std::uint64_t i = 0; i < shape.rows; ++i) {
      const auto first = m.begin() + static_cast<std::ptrdiff_t>(i * shape.columns);
      const Values row(first, first + static_cast<std::ptrdiff_t>(shape.columns));
      for (std::uint32_t k = 0; k < shape.rank; ++k) {
        ASSERT_EQ(p[k * shape.rows + i], sum_of_eight(row, q.data() + k * shape.columns));
      }
    }
  }
}

TEST(LowRank, MultipliesTransposedInTheStatedOrder) {
  for (const Shape& shape : shapes()) {
    const Values m = random_values(shape.elements(), 3);
    const Values p = random_values(shape.p_elements(), 4);
    Values q(shape.q_elements(), 7.0F);
    low_rank::multiply_transposed(shape, m.data(), p.data(), q.data());
    for (std::uint32_t k = 0; k < shape.rank; ++k) {
      for (std::uint64_t j = 0; j < shape.columns; ++j) {
        float sum = 0;
        for (std::uint64_t block = 0; block < shape.rows; block += 16) {
          float part = 0;
          for (std::uint64_t i = block; i < std::min(block + 16, shape.rows); ++i) {
            part += p[k * shape.rows + i] * m[i * shape.columns + j];
          }
          sum += part;
        }
        ASSERT_EQ(q[k * shape.columns + j], sum);
      }
    }
  }
}

TEST(LowRank, MultipliesFactorsInTheStatedOrder) {
  for (const Shape& shape : shapes()) {
    const Values p = random_values(shape.p_elements(), 5);
    const Values q = random_values(shape.q_elements(), 6);
    Values m(shape.elements());
    low_rank::multiply_factors(shape, p.data(), q.data(), m.data());
    for (std::uint64_t i = 0; i < shape.rows; ++i) {
      for (std::uint64_t j = 0; j < shape.columns; ++j) {
        ASSERT_EQ(m[i * shape.columns + j], element_of(shape, p, q, i, j));
      }
    }
  }
}

TEST(LowRank, AddsWhatIsLeft) {
  for (const Shape& shape : shapes()) {
    const Values p = random_values(shape.p_elements(), 7);
    const Values q = random_values(shape.q_elements(), 8);
    const Values kept = random_values(shape.elements(), 9);
    const Values input = random_values(shape.elements(), 10);
    for (const double factor : {1.0, 0.5, 1.0 / 3}) {
      for (const bool has_sent : {true, false}) {
        const low_rank::Left left{kept.data(), has_sent ? p.data() : nullptr, q.data(), factor};
        Values rest(shape.elements());
        low_rank::take(shape, left, rest.data());
        Values sum(shape.elements());
        ASSERT_TRUE(low_rank::add(shape, input.data(), left, sum.data()));
        Values in_place = kept;
        const low_rank::Left own{in_place.data(), left.p, left.q, factor};
        ASSERT_TRUE(low_rank::add(shape, input.data(), own, in_place.data()));
        ASSERT_EQ(sum, in_place);
        for (std::uint64_t i = 0; i < shape.elements(); ++i) {
          const float sent = has_sent ? element_of(shape, p, q, i / shape.columns, i % shape.columns) : 0.0F;
          const float wanted = static_cast<float>(static_cast<double>(kept[i] - sent) * factor);
          ASSERT_EQ(rest[i], wanted);
          ASSERT_EQ(sum[i], input[i] + wanted);
        }
      }
    }
  }
}

// At a place that vectors reach, and at one that they don't.
TEST(LowRank, LeavesOutWhatIsNotFiniteOrTooLarge) {
  const Shape shape{3, 21, 1};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, infinity, -infinity, 2 * low_rank::kMost, -2 * low_rank::kMost}) {
    for (const std::uint64_t at : {0u, 25u, 41u, 62u}) {
      const Values kept(shape.elements(), 0.25F);
      Values input(shape.elements(), 1.0F);
      input[at] = bad;
      const low_rank::Left left{kept.data()};
      Values sum(shape.elements());
      EXPECT_FALSE(low_rank::add(shape, input.data(), left, sum.data()));
      for (std::uint64_t i = 0; i < sum.size(); ++i) ASSERT_EQ(sum[i], i == at ? 0.25F : 1.25F);
      EXPECT_FALSE(low_rank::all_within(input));
    }
  }
  const Values most(5, -low_rank::kMost);
  EXPECT_TRUE(low_rank::all_within(most));
  // What is left may itself be too large, once it has another scale.
  const Values kept(shape.elements(), 0x1p100F);
  const Values input(shape.elements(), 1.0F);
  Values sum(shape.elements());
  EXPECT_FALSE(low_rank::add(shape, input.data(), {kept.data(), nullptr, nullptr, 0x1p60}, sum.data()));
  EXPECT_EQ(sum, Values(shape.elements(), 0.0F));
}

double worst_product(const Shape& shape, const Values& p) {
  double worst = 0;
  for (std::uint32_t a = 0; a < shape.rank; ++a) {
    for (std::uint32_t b = 0; b <= a; ++b) {
      double product = 0;
      for (std::uint64_t i = 0; i < shape.rows; ++i) {
        product += static_cast<double>(p[a * shape.rows + i]) * static_cast<double>(p[b * shape.rows + i]);
      }
      worst = std::max(worst, std::abs(product - (a == b ? 1.0 : 0.0)));
    }
  }
  return worst;
}

// How much of the column is outside of P's span, of its length.
double outside(const Shape& shape, const Values& p, const float* column) {
  std::vector<double> rest(column, column + shape.rows);
  double before = 0;
  for (const double value : rest) before += value * value;
  for (std::uint32_t k = 0; k < shape.rank; ++k) {
    double share = 0;
    for (std::uint64_t i = 0; i < shape.rows; ++i) {
      share += static_cast<double>(p[k * shape.rows + i]) * static_cast<double>(column[i]);
    }
    for (std::uint64_t i = 0; i < shape.rows; ++i) {
      rest[i] -= share * static_cast<double>(p[k * shape.rows + i]);
    }
  }
  double after = 0;
  for (const double value : rest) after += value * value;
  return std::sqrt(after / before);
}

TEST(Orthonormalize, KeepsTheSpan) {
  for (const Shape& shape : {Shape{2, 9, 1}, Shape{5, 9, 4}, Shape{33, 40, 8}, Shape{300, 400, 32}}) {
    for (const float unit : {1.0F, 0x1p-130F, 0x1p100F}) {
      Values p = random_values(shape.p_elements(), 11);
      for (float& value : p) value *= unit;
      const Values before = p;
      low_rank::orthonormalize(shape, p.data(), 1);
      EXPECT_LT(worst_product(shape, p), 1e-6);
      for (std::uint32_t k = 0; k < shape.rank; ++k) {
        EXPECT_LT(outside(shape, p, before.data() + k * shape.rows), 1e-5) << unit;
      }
    }
  }
}

// Columns far from orthogonal: one pass of Gram-Schmidt alone would leave them so.
TEST(Orthonormalize, ClearsNearlyParallelColumns) {
  const Shape shape{200, 300, 4};
  Values p(shape.p_elements());
  const Values noise = random_values(shape.p_elements(), 12);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = 1.0F + 0x1p-16F * noise[i];
  low_rank::orthonormalize(shape, p.data(), 1);
  EXPECT_LT(worst_product(shape, p), 1e-6);
}

TEST(Orthonormalize, FillsUpWhereColumnsDepend) {
  const Shape shape{64, 80, 6};
  Values p = random_values(shape.p_elements(), 13);
  const auto column = [&](std::uint32_t k) {
    return p.begin() + static_cast<std::ptrdiff_t>(k * shape.rows);
  };
  std::copy_n(column(0), shape.rows, column(1));                                    // twice
  std::fill_n(column(3), shape.rows, 0.0F);                                         // nothing
  for (int i = 0; i < 64; ++i) column(4)[i] = 2 * column(0)[i] - 3 * column(2)[i];  // of two others
  const Values before = p;
  low_rank::orthonormalize(shape, p.data(), 1);
  EXPECT_LT(worst_product(shape, p), 1e-6);
  for (const std::uint32_t k : {0u, 2u, 4u, 5u}) {
    EXPECT_LT(outside(shape, p, before.data() + k * shape.rows), 1e-5);
  }
  Values other = before;
  low_rank::orthonormalize(shape, other.data(), 2);
  EXPECT_NE(p, other) << "another seed, another filling";
  Values nothing(shape.p_elements(), 0.0F);
  low_rank::orthonormalize(shape, nothing.data(), 1);
  EXPECT_LT(worst_product(shape, nothing), 1e-6);
}

TEST(NormalizeExponents, MakesTheLargestAHalfToOne) {
  const Shape shape{10, 20, 4};
  Values q = random_values(shape.q_elements(), 14);
  for (std::size_t j = 0; j < 20; ++j) {
    q[j] *= 0x1p60F;
    q[20 + j] *= 0x1p-120F;
    q[40 + j] = 0;
  }
  q[65] = -0.75F;  // a column that is as it should be
  const Values before = q;
  low_rank::normalize_exponents(shape, q.data());
  for (const std::uint64_t k : {0u, 1u, 3u}) {
    float largest = 0;
    for (std::size_t j = 0; j < 20; ++j) {
      largest = std::max(largest, std::abs(q[20 * k + j]));
      EXPECT_EQ(q[20 * k + j] / q[20 * k], before[20 * k + j] / before[20 * k]);
    }
    EXPECT_TRUE(largest >= 0.5F && largest < 1.0F) << k << ": " << largest;
  }
  for (std::size_t j = 0; j < 20; ++j) EXPECT_EQ(q[40 + j], 0.0F);
  for (std::size_t j = 60; j < 80; ++j) EXPECT_EQ(q[j], before[j]);
}

TEST(Draw, IsNearlyNormalAndPinned) {
  Values values(100000);
  low_rank::draw(CounterRng(5), values);
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    sum += static_cast<double>(value);
    squares += static_cast<double>(value) * static_cast<double>(value);
    ASSERT_LE(std::abs(value), 2.0F);
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.006);
  EXPECT_NEAR(squares / 1e5, 1.0 / 3, 0.01);
  // The sum of the four 16-bit words of CounterRng(5).at(0), less 2 * 65535, over 65536.
  std::uint64_t bits = CounterRng(5).at(0);
  std::int64_t words = -131070;
  for (; bits != 0; bits >>= 16) words += static_cast<std::int64_t>(bits & 0xFFFF);
  EXPECT_EQ(values[0], static_cast<float>(words) / 65536.0F);
}

}  // namespace
}  // namespace deltawire::low_rank_test
