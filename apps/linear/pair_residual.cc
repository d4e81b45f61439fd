#include "linear/pair_residual.h"

#include <cmath>
#include <utility>

#include "base/float_environment.h"

namespace deltawire::linear {
namespace {

void clear_list(Pairs& list) noexcept {
  list.keys.clear();
  list.values.clear();
}

void append(Pairs& list, std::uint32_t key, float value) {
  list.keys.push_back(key);
  list.values.push_back(value);
}

}  // namespace

void PairResidual::add_at(std::span<const std::uint32_t> keys, std::span<float> values) const {
  const FloatEnvironment environment;
  std::size_t next = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    while (next < waiting_.keys.size() && waiting_.keys[next] < keys[i]) ++next;
    if (next == waiting_.keys.size()) return;
    if (waiting_.keys[next] == keys[i]) values[i] += waiting_.values[next];
  }
}

void PairResidual::put(std::span<const std::uint32_t> keys, std::span<const float> left) {
  clear_list(next_);
  std::size_t old = 0;
  const auto keep_below = [&](std::uint64_t end) {
    while (old < waiting_.keys.size() && waiting_.keys[old] < end) {
      append(next_, waiting_.keys[old], waiting_.values[old]);
      ++old;
    }
  };
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keep_below(keys[i]);
    if (old < waiting_.keys.size() && waiting_.keys[old] == keys[i]) ++old;
    if (left[i] != 0) append(next_, keys[i], left[i]);
  }
  keep_below(~std::uint64_t{0});
  std::swap(waiting_, next_);
}

void PairResidual::clear() noexcept {
  clear_list(waiting_);
}

Status PairResidual::save(CheckpointWriter& out) const {
  const Status done = out.values(std::span<const std::uint32_t>(waiting_.keys));
  return done ? out.values(std::span<const float>(waiting_.values)) : done;
}

Status PairResidual::load(CheckpointReader& in, std::uint64_t dimension) {
  Pairs read{.keys = {}, .values = {}, .dimension = dimension};
  Status done = in.values(read.keys);
  if (done) done = in.values(read.values);
  if (!done) return done;
  bool is_whole = read.keys.size() == read.values.size();
  std::uint64_t least = 0;
  for (std::size_t i = 0; is_whole && i < read.keys.size(); ++i) {
    is_whole = read.keys[i] >= least && read.keys[i] < dimension && std::isfinite(read.values[i]) &&
               read.values[i] != 0;
    least = std::uint64_t{read.keys[i]} + 1;
  }
  if (!is_whole) return in.damaged("makes no sense");
  waiting_ = std::move(read);
  return {};
}

}  // namespace deltawire::linear
