#include "reduce/owners.h"

#include <algorithm>
#include <span>

#include "base/checked.h"
#include "wire/hashes.h"

namespace deltawire {

std::vector<OwnedRange> owned_ranges(std::string_view name, std::uint64_t count, int world_size) {
  if (count == 0) return {};
  const auto world = static_cast<std::uint64_t>(world_size);
  // The hash spreads the small tensors over the ranks; the pieces of a large one go round from there.
  const std::uint64_t start = digest64(std::as_bytes(std::span(name)), 0) % world;
  if (count < kWholeTensorElements) return {{0, count, static_cast<int>(start)}};
  const std::uint64_t rows = ceil_div(count, kCutElements);
  std::vector<OwnedRange> ranges;
  std::uint64_t first = 0;
  for (std::uint64_t i = 0; i < world; ++i) {
    const std::uint64_t end = std::min(count, kCutElements * ((i + 1) * rows / world));
    if (end == first) continue;
    ranges.push_back({first, end - first, static_cast<int>((start + i) % world)});
    first = end;
  }
  return ranges;
}

}  // namespace deltawire
