#include "linear/step_average.h"

#include <algorithm>
#include <cmath>

namespace deltawire::linear {
namespace {

constexpr double kBlockShrinks = 5;  // a logarithm: down to a 150th
constexpr double kNothing = 1e-30;

}  // namespace

void StepAverage::note_step(double shrunk) {
  const auto t = static_cast<std::uint32_t>(step_weights_.size() + 1);
  const bool begins = blocks_.empty() || blocks_.back().shrunk - shrunk_ > kBlockShrinks;
  if (begins) blocks_.push_back({.first = t, .shrunk = shrunk_});
  const double weight = std::pow(static_cast<double>(t), power_);
  step_weights_.push_back(weight);
  total_ += weight;
  within_.push_back((begins ? 0 : within_.back()) + weight * std::exp(shrunk - blocks_.back().shrunk));
  shrunk_ = shrunk;
}

void StepAverage::forget_steps() {
  total_ = 0;
  shrunk_ = 0;
  step_weights_.clear();
  within_.clear();
  blocks_.clear();
}

double StepAverage::weight_since(std::uint32_t from, double shrunk) const noexcept {
  if (from >= step_weights_.size()) return 0;
  // The block of the step that comes next: what it begins with is at most kBlockShrinks above `shrunk`.
  auto block = std::ranges::upper_bound(blocks_, from + 1, {}, &Block::first) - 1;
  double before = from + 1 == block->first ? 0 : within_[from - 1];
  double sum = 0;
  for (; block != blocks_.end(); ++block, before = 0) {
    const double factor = std::exp(block->shrunk - shrunk);
    if (factor < kNothing) break;
    const auto next = block + 1;
    const std::size_t end = next == blocks_.end() ? step_weights_.size() : next->first - 1;
    sum += factor * (within_[end - 1] - before);
  }
  return sum;
}

}  // namespace deltawire::linear
