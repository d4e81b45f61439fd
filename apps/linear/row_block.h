// A block of sparse rows in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace deltawire::linear {

// Compressed sparse rows: row i has labels[i] and the features keys[j], values[j] for ends[i - 1] <= j <
// ends[i]. The keys of a row grow strictly. A block has at most 2^32 - 1 features.
struct RowBlock {
  std::vector<float> labels;
  std::vector<std::uint32_t> ends;
  std::vector<std::uint32_t> keys;
  std::vector<float> values;

  std::size_t rows() const noexcept { return labels.size(); }
  std::size_t first_of(std::size_t row) const noexcept { return row == 0 ? 0 : ends[row - 1]; }
  std::size_t bytes() const noexcept { return 8 * (labels.size() + keys.size()); }
  void clear() noexcept {
    labels.clear();
    ends.clear();
    keys.clear();
    values.clear();
  }
};

}  // namespace deltawire::linear
