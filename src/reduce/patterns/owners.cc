#include "reduce/patterns/owners.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <span>

#include "base/checked.h"
#include "wire/hashes.h"

namespace deltawire {

Named part_of(const Named& whole, std::uint64_t first, std::uint64_t count, void* values) {
  assert(first <= whole.tensor.count && count <= whole.tensor.count - first);
  Named part{whole.name, {nullptr, count, whole.tensor.dtype}, whole.first + first};
  move_part(part, whole, values);
  if (count == whole.tensor.count) part.tensor.dims = whole.tensor.dims;
  part.elements_of_whole = whole.whole_elements();
  part.dims_of_whole = static_cast<std::uint32_t>(whole.whole_dims());
  part.name_hash = whole.name_hash;
  part.is_transient = whole.is_transient;
  return part;
}

Named staged_part(Named part) noexcept {
  part.summed_dtype = part.own_dtype();
  part.tensor.dtype = DType::kF32;
  return part;
}

void move_part(Named& part, const Named& whole, void* values) noexcept {
  assert(part.first >= whole.first);
  const std::uint64_t skipped = part.first - whole.first;
  const float* significance = whole.tensor.significance;
  const std::uint64_t skipped_bytes = skipped * dtype_bytes(part.tensor.dtype);
  part.tensor.values = values == nullptr ? nullptr : static_cast<std::byte*>(values) + skipped_bytes;
  part.tensor.significance = significance == nullptr ? nullptr : significance + skipped;
}

std::vector<OwnedRange> owned_ranges(std::string_view name, std::uint64_t count, int world_size,
                                     std::uint64_t most_elements) {
  assert(world_size >= 1 && most_elements > 0);
  if (count == 0) return {};
  const auto world = static_cast<std::uint64_t>(world_size);
  // The hash spreads the small tensors over the ranks; the pieces of a large one go round from there.
  const std::uint64_t start = digest64(std::as_bytes(std::span(name)), 0) % world;
  std::vector<OwnedRange> ranges;
  const auto add = [&](std::uint64_t first, std::uint64_t end, std::uint64_t owner) {
    for (std::uint64_t at = first; at < end; at += most_elements) {
      ranges.push_back({at, std::min(most_elements, end - at), static_cast<int>(owner)});
    }
  };
  if (count < kWholeTensorElements) {
    add(0, count, start);
    return ranges;
  }
  const std::uint64_t rows = ceil_div(count, kCutElements);
  std::uint64_t first = 0;
  for (std::uint64_t i = 0; i < world; ++i) {
    const std::uint64_t end = std::min(count, kCutElements * ((i + 1) * rows / world));
    add(first, end, (start + i) % world);
    first = end;
  }
  assert(first == count);
  return ranges;
}

}  // namespace deltawire
