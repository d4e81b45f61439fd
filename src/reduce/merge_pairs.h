// The sum of key-value tensors, one list after another.
#pragma once

#include <cstddef>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire {

class MergedPairs {
 public:
  // Empty sums for so many tensors.
  void clear(std::size_t tensor_count);

  // sums[tensor] += addend. A key that only one of them has keeps its value, bit for bit.
  void add(std::size_t tensor, const Pairs& addend);

  const std::vector<Pairs>& sums() const noexcept { return sums_; }

  // Gives the sums away, in exchange for memory to use next time.
  void move_to(std::vector<Pairs>& sums) { sums_.swap(sums); }

 private:
  std::vector<Pairs> sums_;
  Pairs merged_;
};

}  // namespace deltawire
