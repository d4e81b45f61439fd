// onebit:means=column: the shapes that have columns, bytes, an independent model, and what a decoder must
// refuse.
#include <array>
#include <cmath>

#include <gtest/gtest.h>

#include "codecs/codec_testing.h"

namespace deltawire::onebit_columns_test {
namespace {

using namespace testing;
using Dims = std::vector<std::uint64_t>;

const std::string kSpec = "onebit:means=column";

Encoded coded(const Floats& values, const Dims& dims, std::span<float> residual = {}) {
  TensorView view{values.data(), values.size(), DType::kF32};
  view.dims = dims;
  return *testing::encode_view(*codec_of(kSpec), view, residual);
}

std::uint32_t word_at(const Encoded& part, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 4; i-- > 0;) word = word << 8 | std::to_integer<std::uint32_t>(part.payload[at + i]);
  return word;
}

std::uint32_t columns_of(const Dims& dims) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : dims) count *= extent;
  return word_at(coded(Floats(count, 1.0F), dims), 0);
}

// A matrix has as many rows as the first extent says, if these are 64 at least.
TEST(OnebitColumns, ShapesThatHaveThem) {
  EXPECT_EQ(columns_of({64, 3}), 3U);
  EXPECT_EQ(columns_of({64, 3, 2, 5}), 30U);
  EXPECT_EQ(columns_of({1000, 1}), 1U);
  EXPECT_EQ(columns_of({63, 3}), 1U);
  EXPECT_EQ(columns_of({3, 64}), 1U);
  EXPECT_EQ(columns_of({192}), 1U);
  EXPECT_EQ(word_at(coded(Floats(192, 1.0F), {}), 0), 1U);
  EXPECT_EQ(coded({}, {64, 0}).payload.size(), 0U);
}

TEST(OnebitColumns, MeansThenBitsInChunks) {
  Floats values;
  for (int row = 0; row < 64; ++row) {
    values.push_back(row % 2 == 0 ? 1.0F : 3.0F);
    values.push_back(row < 32 ? -2.0F : -4.0F);
  }
  const Encoded part = coded(values, {64, 2});
  EXPECT_EQ(part.chunk_ends, (std::vector<std::uint32_t>{20, 36}));
  EXPECT_EQ(part.scalar, 0U);
  EXPECT_EQ(part.scalar2, 0U);
  EXPECT_EQ(word_at(part, 0), 2U);
  EXPECT_EQ(word_at(part, 4), bits_of(2));
  EXPECT_EQ(word_at(part, 8), 0U);
  EXPECT_EQ(word_at(part, 12), 0U);
  EXPECT_EQ(word_at(part, 16), bits_of(-3));
  for (std::size_t i = 20; i < 36; ++i) EXPECT_EQ(part.payload[i], std::byte{0b10101010});
}

TEST(OnebitColumns, LongPartsHaveAChunkForEach65536Bits) {
  const Encoded part = coded(Floats(131072 + 64, 1.0F), {131072 + 64, 1});
  EXPECT_EQ(part.chunk_ends, (std::vector<std::uint32_t>{12, 12 + 8192, 12 + 16384, 12 + 16384 + 8}));
}

TEST(OnebitColumns, MeansAndResidualsAreTheModels) {
  for (const auto& [rows, columns] : {std::pair<std::uint64_t, std::uint64_t>{64, 1}, {64, 7}, {700, 100}}) {
    const std::uint64_t count = rows * columns;
    Floats values = testing::normal_values(count, count);
    Floats residual = testing::normal_values(count, count + 1);
    for (std::size_t i = 0; i < count; ++i) {  // so far apart that sums depend on their order
      values[i] = std::ldexp(values[i], static_cast<int>(i % 97) - 48);
    }
    Floats x(count);
    for (std::size_t i = 0; i < count; ++i) x[i] = values[i] + residual[i];
    const Encoded part = coded(values, {rows, columns}, residual);
    const Floats back = *testing::decode(*codec_of(kSpec), part.view(), count);
    for (std::size_t column = 0; column < columns; ++column) {
      std::array<double, 2> sums = {0, 0};
      std::array<double, 2> numbers = {0, 0};
      for (std::size_t i = column; i < count; i += columns) {
        sums[x[i] < 0 ? 1 : 0] += static_cast<double>(x[i]);
        numbers[x[i] < 0 ? 1 : 0] += 1;
      }
      for (std::size_t i = column; i < count; i += columns) {
        const std::size_t side = x[i] < 0 ? 1 : 0;
        const auto mean = static_cast<float>(sums[side] / numbers[side]);
        ASSERT_EQ(back[i], mean) << i;
        ASSERT_EQ(residual[i], x[i] - mean) << i;
      }
    }
  }
}

// 128 elements in two columns, all 1, but for what is changed.
Encoded two_columns() {
  return coded(Floats(128, 1.0F), {64, 2});
}

ErrorCode verdict(const Encoded& part, std::uint64_t count = 128) {
  return testing::verdict_of(kSpec, part, count);
}

ErrorCode verdict_with(std::size_t at, std::uint32_t word) {
  Encoded part = two_columns();
  for (std::size_t i = 0; i < 4; ++i) part.payload[at + i] = static_cast<std::byte>(word >> 8 * i & 0xFF);
  return verdict(part);
}

TEST(OnebitColumnsRefusals, HeadsAndMeans) {
  EXPECT_EQ(verdict(two_columns()), kAccepted);
  EXPECT_EQ(verdict_with(0, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict_with(0, 1), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict_with(0, 3), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict_with(0, 4), ErrorCode::kCorrupt);  // of 32 elements each
  EXPECT_EQ(verdict_with(0, 0x80000000), ErrorCode::kCorrupt);
  for (const std::uint32_t high : {0x7F800000U, 0x7FC00000U, 0x80000000U, 0xBF800000U}) {
    EXPECT_EQ(verdict_with(4, high), ErrorCode::kCorrupt) << high;
    EXPECT_EQ(verdict_with(12, high), ErrorCode::kCorrupt) << high;
  }
  for (const std::uint32_t low : {1U, 0x3F800000U, 0x80000000U, 0xFF800000U, 0xFFC00000U}) {
    EXPECT_EQ(verdict_with(8, low), ErrorCode::kCorrupt) << low;
  }
  EXPECT_EQ(verdict_with(16, bits_of(-1)), kAccepted);
}

TEST(OnebitColumnsRefusals, Bits) {
  EXPECT_EQ(verdict_with(20, 1), ErrorCode::kCorrupt);  // no mean for what is negative
  EXPECT_EQ(verdict_with(32, 0x80000000), ErrorCode::kCorrupt);
  Encoded part = two_columns();
  part.payload[20] = std::byte{0b10};
  part.payload[16] = std::byte{1};
  part.payload[19] = std::byte{0x80};  // the second column has one
  EXPECT_EQ(verdict(part), kAccepted);
  part.payload[20] = std::byte{0b11};
  EXPECT_EQ(verdict(part), ErrorCode::kCorrupt);
  Encoded three = coded(Floats(3, 1.0F), {});
  three.payload.back() = std::byte{8};
  three.payload[8] = std::byte{1};
  three.payload[11] = std::byte{0x80};
  EXPECT_EQ(verdict(three, 3), ErrorCode::kCorrupt);
}

TEST(OnebitColumnsRefusals, Chunks) {
  Encoded part = two_columns();
  part.chunk_ends = {36};
  EXPECT_EQ(verdict(part), ErrorCode::kCorrupt);
  part.chunk_ends = {3, 36};
  EXPECT_EQ(verdict(part), ErrorCode::kTruncated);
  part.chunk_ends = {19, 36};
  EXPECT_EQ(verdict(part), ErrorCode::kTruncated);
  part.chunk_ends = {21, 36};
  EXPECT_EQ(verdict(part), ErrorCode::kCorrupt);
  part = two_columns();
  part.payload.pop_back();
  part.chunk_ends = {20, 35};
  EXPECT_EQ(verdict(part), ErrorCode::kTruncated);
  part.payload.resize(37);
  part.chunk_ends = {20, 37};
  EXPECT_EQ(verdict(part), ErrorCode::kCorrupt);
  part.chunk_ends = {20, 36, 37};
  EXPECT_EQ(verdict(part), ErrorCode::kCorrupt);
  EXPECT_EQ(verdict(Encoded{}, 0), kAccepted);
  EXPECT_EQ(make_codec("onebit:means=row").error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltawire::onebit_columns_test
