#include "channel/weighted_residuals.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/float_environment.h"
#include "channel/channel_state.h"

namespace deltawire {
namespace {

// Of the elements of a part, in the scale of the first that was added. Empty: nothing was.
class WeightedSum {
 public:
  // values[i] counts for element at + i of `count`.
  void add(std::span<const float> values, std::uint64_t at, std::uint64_t count, double factor, float scale) {
    if (sums_.empty()) {
      sums_.assign(count, 0.0);
      scale_ = scale;
    }
    assert(sums_.size() == count && at + values.size() <= count);
    factor *= static_cast<double>(scale_) / static_cast<double>(scale);
    for (std::size_t i = 0; i < values.size(); ++i) sums_[at + i] += factor * static_cast<double>(values[i]);
  }

  bool empty() const noexcept { return sums_.empty(); }
  float scale() const noexcept { return scale_; }
  // One rounding each.
  std::vector<float> rounded() const {
    std::vector<float> values(sums_.size());
    std::ranges::transform(sums_, values.begin(), [](double sum) { return static_cast<float>(sum); });
    return values;
  }

 private:
  std::vector<double> sums_;
  float scale_ = 1.0F;
};

struct PartSum {
  const Named* part = nullptr;
  WeightedSum residual;
  WeightedSum velocity;
};

struct Tensor {
  std::uint64_t elements = 0;
  std::vector<PartSum> parts;
};

class Adder {
 public:
  explicit Adder(const CutTensors& wanted) {
    for (const Named& tensor : wanted.tensors) tensors_[tensor.name].elements = tensor.tensor.elements();
    for (const Named& part : wanted.parts) tensors_[part.name].parts.push_back({&part, {}, {}});
  }

  Status add(const ResidualStore& saved, double weight) {
    const ResidualStore::Entry* before = nullptr;
    for (const ResidualStore::Entry* entry : saved.sorted()) {
      const auto tensor = tensors_.find(entry->name);
      const auto end = checked_add(entry->first, entry->values.size());
      if (tensor == tensors_.end() || !end || *end > tensor->second.elements) return foreign(*entry);
      if (before != nullptr && before->name == entry->name &&
          before->first + before->values.size() > entry->first) {
        return fail(ErrorCode::kCorrupt, "channel state: parts of '" + entry->name + "' overlap");
      }
      before = entry;
      for (PartSum& sum : tensor->second.parts) add_overlap(*entry, weight, sum);
    }
    return {};
  }

  Status store_in(ResidualStore& store) const {
    const auto all_finite = [](std::span<const float> values) {
      return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
    };
    for (const auto& [name, tensor] : tensors_) {
      for (const PartSum& sum : tensor.parts) {
        if (sum.residual.empty()) continue;
        std::vector<float> velocity = sum.velocity.rounded();
        Result<ResidualStore::Entry*> entry = store.obtain(*sum.part);
        if (!entry) return forward_error(entry);
        (*entry)->values = sum.residual.rounded();
        (*entry)->scale = sum.residual.scale();
        if (!all_finite((*entry)->values) || !all_finite(velocity)) {
          return fail(ErrorCode::kRange, "tensor '" + std::string(name) +
                                             "': what the saved ranks keep of it is not finite, or too large "
                                             "in sum; go on without these states");
        }
        if (!velocity.empty()) (*entry)->velocity.load(std::move(velocity), sum.velocity.scale());
        (*entry)->count();
      }
    }
    return {};
  }

 private:
  static void add_overlap(const ResidualStore::Entry& entry, double weight, PartSum& sum) {
    const std::uint64_t count = sum.part->tensor.elements();
    const std::uint64_t begin = std::max(entry.first, sum.part->first);
    const std::uint64_t end = std::min(entry.first + entry.values.size(), sum.part->first + count);
    if (begin >= end) return;
    const auto overlap = [&](std::span<const float> values) {
      return values.subspan(begin - entry.first, end - begin);
    };
    const std::uint64_t at = begin - sum.part->first;
    sum.residual.add(overlap(entry.values), at, count, weight, entry.scale);
    const std::span<const float> velocity = entry.velocity.values();
    if (!velocity.empty()) sum.velocity.add(overlap(velocity), at, count, weight, entry.velocity.scale());
  }

  static Status foreign(const ResidualStore::Entry& entry) {
    return fail(ErrorCode::kMismatch,
                "the state has a residual of elements " + std::to_string(entry.first) + " to " +
                    std::to_string(entry.first + entry.values.size()) + " of '" + entry.name +
                    "', which the job doesn't exchange; load it into the model that it was saved with");
  }

  std::unordered_map<std::string_view, Tensor> tensors_;
};

}  // namespace

Status add_weighted(std::span<const WeightedState> states, const CutTensors& wanted,
                    std::uint64_t params_hash, ResidualStore& store) {
  const FloatEnvironment environment;
  Adder adder(wanted);
  for (const WeightedState& each : states) {
    ResidualStore saved;
    if (Status loaded = load_residuals(each.state, params_hash, saved); !loaded) return loaded;
    if (Status added = adder.add(saved, each.weight); !added) return added;
  }
  return adder.store_in(store);
}

}  // namespace deltawire
