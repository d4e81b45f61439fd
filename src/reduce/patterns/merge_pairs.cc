#include "reduce/patterns/merge_pairs.h"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace deltawire {

void add_pairs(Pairs& sum, const Pairs& addend, Pairs& spare) {
  spare.keys.clear();
  spare.values.clear();
  std::size_t left = 0;
  std::size_t right = 0;
  const auto take = [&](std::uint32_t key, float value) {
    spare.keys.push_back(key);
    spare.values.push_back(value);
  };
  while (left < sum.keys.size() || right < addend.keys.size()) {
    const bool no_right = right == addend.keys.size();
    const bool no_left = left == sum.keys.size();
    if (no_right || (!no_left && sum.keys[left] < addend.keys[right])) {
      take(sum.keys[left], sum.values[left]);
      ++left;
    } else if (no_left || addend.keys[right] < sum.keys[left]) {
      take(addend.keys[right], addend.values[right]);
      ++right;
    } else {
      take(sum.keys[left], sum.values[left] + addend.values[right]);
      ++left;
      ++right;
    }
  }
  std::swap(sum.keys, spare.keys);
  std::swap(sum.values, spare.values);
}

}  // namespace deltawire
