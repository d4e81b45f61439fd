#include "optim/lines.h"

#include <cassert>
#include <functional>
#include <numeric>

namespace deltawire {

Lines::Lines(std::span<const std::uint64_t> dims, std::uint64_t first, std::uint64_t count)
    : row_elements_(count), elements_(count) {
  assert(count > 0);
  if (dims.size() < 2) return;
  const std::uint64_t in_a_row =
      std::accumulate(dims.begin() + 1, dims.end(), std::uint64_t{1}, std::multiplies());
  assert(in_a_row > 0 && first + count <= dims[0] * in_a_row);
  const std::uint64_t rows = (first + count - 1) / in_a_row - first / in_a_row + 1;
  if (rows == 1) return;
  rows_ = rows;
  columns_ = dims[1];
  row_elements_ = in_a_row;
  place_ = first % in_a_row;
}

void Lines::column_means(std::span<const float> sums, std::span<float> out) const {
  const std::size_t width = row_elements_ / columns_;
  // How many elements of a whole tensor before this one are in the column that begins at `begin`, and
  // `begin`.
  const auto before = [&](std::size_t element, std::size_t begin) {
    return element / row_elements_ * width + std::clamp(element % row_elements_, begin, begin + width);
  };
  for (std::size_t column = 0; column < columns_; ++column) {
    const std::size_t begin = column * width;
    const std::size_t elements = before(place_ + elements_, begin) - before(place_, begin);
    const std::span<const float> own = sums.subspan(begin, width);
    const double sum = std::accumulate(own.begin(), own.end(), 0.0);
    out[column] = elements == 0 ? 0 : static_cast<float>(sum / static_cast<double>(elements));
  }
}

std::vector<float> Lines::shape_of_rows(std::span<const float> means) const {
  assert(means.size() == count());
  std::vector<float> shape(row_elements_, 1.0F);
  if (columns_ == 0) return shape;
  double sum = 0;
  for_each_row([&](std::size_t row, std::size_t, std::size_t elements, std::size_t) {
    sum += static_cast<double>(means[row]) * static_cast<double>(elements);
  });
  const double mean = sum / static_cast<double>(elements_);
  const std::size_t width = row_elements_ / columns_;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    const double share = mean > 0 ? static_cast<double>(means[rows_ + i / width]) / mean : 0;
    shape[i] = static_cast<float>(share);
  }
  return shape;
}

}  // namespace deltawire
