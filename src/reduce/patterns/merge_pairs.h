// The sum of key-value tensors, one list after another.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire {

class MergedPairs {
 public:
  // Empty sums of these dense tensors' dimensions.
  void clear(std::span<const Named> tensors);

  // sums[tensor] += addend. A key that only one of them has keeps its value, bit for bit.
  void add(std::size_t tensor, const Pairs& addend);

  std::span<const Pairs> sums() const { return sums_; }

  // Gives the sums away, in exchange for memory to use next time.
  void move_to(std::vector<Pairs>& sums) { sums_.swap(sums); }

 private:
  std::vector<Pairs> sums_;
  Pairs merged_;
};

}  // namespace deltawire
