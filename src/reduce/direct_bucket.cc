#include "reduce/direct_bucket.h"

#include <cstring>

#include "reduce/owners.h"

namespace deltawire {
namespace {

void clear_all(std::vector<std::vector<Named>>& by_owner, std::size_t world) {
  by_owner.resize(world);
  for (auto& parts : by_owner) parts.clear();
}

}  // namespace

void DirectBucket::plan(std::span<const Named> given, const Step& at, Transport& over, Deadline until) {
  step = at;
  transport = &over;
  deadline = until;
  report = Report{};
  sends.clear();
  const auto world = static_cast<std::size_t>(over.world_size());
  names.assign(given.size(), {});
  tensors.assign(given.begin(), given.end());
  clear_all(input, world);
  clear_all(output, world);
  pushes.resize(world);
  pulls.resize(world);
  for (std::size_t rank = 0; rank < world; ++rank) {
    pushes[rank].handle = Handle::kNone;
    pulls[rank].handle = Handle::kNone;
  }
  std::uint64_t elements = 0;
  for (const Named& tensor : given) elements += tensor.tensor.count;
  report.element_count = elements;
  staged.resize(elements);
  std::uint64_t staged_at = 0;
  for (std::size_t i = 0; i < given.size(); ++i) {
    names[i] = given[i].name;
    tensors[i].name = names[i];
    auto* values = static_cast<float*>(given[i].tensor.values);
    for (const OwnedRange& range : owned_ranges(names[i], given[i].tensor.count, over.world_size())) {
      const auto owner = static_cast<std::size_t>(range.owner);
      const std::uint64_t first = given[i].first + range.first;
      input[owner].push_back({names[i], {values + range.first, range.count, DType::kF32}, first});
      output[owner].push_back(
          {names[i], {staged.data() + staged_at + range.first, range.count, DType::kF32}, first});
    }
    staged_at += given[i].tensor.count;
  }
  const auto& owned = output[static_cast<std::size_t>(over.rank())];
  std::uint64_t own_elements = 0;
  for (const Named& part : owned) own_elements += part.tensor.count;
  own_mean.assign(own_elements, 0.0F);
  mean.clear();
  std::uint64_t mean_at = 0;
  for (const Named& part : owned) {
    mean.push_back({part.name, {own_mean.data() + mean_at, part.tensor.count, DType::kF32}, part.first});
    mean_at += part.tensor.count;
  }
}

void DirectBucket::publish() const {
  std::uint64_t at = 0;
  for (const Named& tensor : tensors) {
    if (tensor.tensor.count == 0) continue;
    std::memcpy(tensor.tensor.values, staged.data() + at, 4 * tensor.tensor.count);
    at += tensor.tensor.count;
  }
}

}  // namespace deltawire
