// The rows (dimension 0) and columns (dimension 1) of a tensor or of a part of it, of whose means a tensor of
// rank one is made (Shazeer and Stern: Adafactor, ICML 2018, section 3).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace deltawire {

// Numbers of lines are one a row, then, where there are several rows, one a column.
class Lines {
 public:
  // Of the elements [first, first + count) of a tensor with these dims, one or more. A vector is one row, and
  // so is what lies within a row. At its ends a part may have rows of fewer elements.
  Lines(std::span<const std::uint64_t> dims, std::uint64_t first, std::uint64_t count);

  std::size_t rows() const noexcept { return rows_; }
  std::size_t count() const noexcept { return rows_ + columns_; }

  // Calls visit(row, at, elements, place) for each row: where its elements are in the part, and where in a
  // whole row.
  void for_each_row(const auto& visit) const {
    std::size_t place = place_;
    for (std::size_t row = 0, at = 0; row < rows_; ++row) {
      const std::size_t elements = std::min(row_elements_ - place, elements_ - at);
      visit(row, at, elements, place);
      at += elements;
      place = 0;
    }
  }

  // Writes the lines' means of of(value) to `out`, which has count() of them.
  void means(std::span<const float> values, const auto& of, std::span<float> out) const {
    std::vector<float> sums(row_elements_);  // of the elements in one place of their rows
    for_each_row([&](std::size_t row, std::size_t at, std::size_t elements, std::size_t place) {
      double sum = 0;
      for (std::size_t i = 0; i < elements; ++i) {
        const float value = of(values[at + i]);
        sums[place + i] += value;
        sum += value;
      }
      out[row] = static_cast<float>(sum / static_cast<double>(elements));
    });
    if (columns_ > 0) column_means(sums, out.subspan(rows_));
  }

  // The tensor of rank one whose lines have these means: means[row] times the element in the same place of
  // this row.
  std::vector<float> shape_of_rows(std::span<const float> means) const;

 private:
  void column_means(std::span<const float> sums, std::span<float> out) const;

  std::size_t rows_ = 1;
  std::size_t columns_ = 0;
  std::size_t row_elements_ = 0;
  std::size_t elements_ = 0;  // of the part
  std::size_t place_ = 0;     // of its first element, in its row
};

}  // namespace deltawire
