// Reference kernels of means=column: sums, residuals and values of a matrix's columns.
#include <cstdint>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/onebit/onebit_ops.h"

namespace deltawire::onebit::DELTAWIRE_TARGET {

namespace {

Means means_of(const ColumnMeans& columns, std::uint64_t column) noexcept {
  const std::byte* const at = columns.at + column * kColumnBytes;
  return {bit_cast<float>(load_le<std::uint32_t>(at)), bit_cast<float>(load_le<std::uint32_t>(at + 4))};
}

}  // namespace

// Row by row, so that each column's values are added in their order, and those of a row side by side.
std::uint32_t split_columns(const Addends& x, const ColumnSides& columns, std::byte* payload) {
  std::uint32_t largest = 0;
  for (std::uint64_t j = 0; j < columns.count; ++j) columns.at[j] = Sides{};
  for (std::uint64_t i = 0, j = 0; i < x.count; ++i, j = j + 1 < columns.count ? j + 1 : 0) {
    const float sum = sum_at(x, i);
    const bool negative = sum < 0;
    const std::uint32_t magnitude = magnitude_bits(sum);
    largest = magnitude > largest ? magnitude : largest;
    columns.at[j].negatives += negative ? 1 : 0;
    columns.at[j].high += negative ? 0.0F : sum;
    columns.at[j].low += negative ? -sum : 0.0F;
    put_sign_bit(payload, i, negative);
    if (x.left != nullptr) x.left[i] = sum;
  }
  return largest;
}

void take_column_means(const Addends& x, const ColumnMeans& columns) {
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    const Means means = means_of(columns, i % columns.count);
    x.left[i] = sum - (sum < 0 ? means.low : means.high);
  }
}

std::uint64_t find_without_mean(const std::byte* payload, std::uint64_t count, const ColumnMeans& columns) {
  std::uint64_t i = 0;
  while (i < count && !(sign_bit(payload, i) && means_of(columns, i % columns.count).low == 0)) ++i;
  return i;
}

void decode_columns(const std::byte* payload, const ColumnMeans& columns, const ColumnTarget& target) {
  for (std::uint64_t i = 0; i < target.count; ++i) {
    const float value = target.scale * side_value(payload, i, means_of(columns, i % columns.count));
    target.slot[i] = target.accumulate ? target.slot[i] + value : value;
  }
}

}  // namespace deltawire::onebit::DELTAWIRE_TARGET
