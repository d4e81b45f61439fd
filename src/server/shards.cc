#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "base/errors.h"
#include "deltawire/server.h"
#include "reduce/patterns/owners.h"

namespace deltawire {
namespace {

constexpr std::size_t kMostParts = 65536;  // a frame's bucket names the part

// Even cuts, at multiples of kCutElements.
void cut(std::size_t tensor, std::uint64_t count, std::uint64_t most, std::vector<ServedPart>& parts) {
  if (count == 0) return;
  assert(most > 0);
  const std::uint64_t pieces = ceil_div(count, most);
  const std::uint64_t even = ceil_div(ceil_div(count, pieces), kCutElements) * kCutElements;
  const std::uint64_t length = pieces == 1 ? count : std::min(even, most);
  for (std::uint64_t first = 0; first < count; first += length) {
    parts.push_back({tensor, first, std::min(length, count - first), 0});
  }
}

void give_owners(std::vector<ServedPart>& parts, int servers) {
  assert(servers >= 1);
  std::vector<std::size_t> order(parts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // The longest first, of equal ones the first. No stable sort: that of libstdc++ 12 uses what C++17
  // deprecates, and clang warns of it.
  std::ranges::sort(
      order, [&](auto a, auto b) { return std::pair(parts[b].count, a) < std::pair(parts[a].count, b); });
  std::vector<std::uint64_t> load(static_cast<std::size_t>(servers), 0);
  for (const std::size_t part : order) {
    const auto least = std::ranges::min_element(load);
    *least += parts[part].count;
    parts[part].server = static_cast<int>(least - load.begin());
  }
}

}  // namespace

Result<std::vector<ServedPart>> serve_parts(std::span<const Named> model, int servers) {
  if (servers < 1) return invalid("a model needs one server at least");
  std::uint64_t total = 0;
  for (const Named& tensor : model) total += tensor.tensor.elements();
  std::uint64_t most = kMostElements;
  if (servers > 1) {
    const std::uint64_t quarter = ceil_div(total, 4 * static_cast<std::uint64_t>(servers));
    const std::uint64_t whole = std::max(kWholeTensorElements, quarter);
    most = std::min(kMostElements, ceil_div(whole, kCutElements) * kCutElements);
  }
  std::vector<ServedPart> parts;
  for (std::size_t tensor = 0; tensor < model.size(); ++tensor) {
    cut(tensor, model[tensor].tensor.elements(), most, parts);
    if (parts.size() > kMostParts) {
      return fail(ErrorCode::kLimit, "the model has more than 65,536 parts; join small tensors");
    }
  }
  give_owners(parts, servers);
  return parts;
}

}  // namespace deltawire
