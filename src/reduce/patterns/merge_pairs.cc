#include "reduce/patterns/merge_pairs.h"

#include <utility>

namespace deltawire {

void MergedPairs::clear(std::span<const Named> tensors) {
  sums_.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    sums_[i].keys.clear();
    sums_[i].values.clear();
    sums_[i].dimension = tensors[i].tensor.count;
  }
}

void MergedPairs::add(std::size_t tensor, const Pairs& addend) {
  Pairs& sum = sums_[tensor];
  merged_.keys.clear();
  merged_.values.clear();
  std::size_t left = 0;
  std::size_t right = 0;
  const auto take = [&](std::uint32_t key, float value) {
    merged_.keys.push_back(key);
    merged_.values.push_back(value);
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
  std::swap(sum.keys, merged_.keys);
  std::swap(sum.values, merged_.values);
}

}  // namespace deltawire
