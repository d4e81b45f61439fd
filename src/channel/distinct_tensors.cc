#include "channel/distinct_tensors.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/errors.h"

namespace deltawire {
namespace {

std::vector<const Named*> by_name(std::span<const Named> tensors) {
  std::vector<const Named*> list;
  list.reserve(tensors.size());
  for (const Named& tensor : tensors) list.push_back(&tensor);
  std::ranges::sort(list, [](const Named* one, const Named* other) {
    return std::tie(one->name, one->first) < std::tie(other->name, other->first);
  });
  return list;
}

Status called_alike(std::string_view name) {
  return invalid("two tensors are called '" + std::string(name) +
                 "'; residuals belong to names, so give each one of its own");
}

// Where a tensor lies that will be written; nowhere for others.
struct Extent {
  const std::byte* begin = nullptr;
  const std::byte* end = nullptr;
  std::string_view name;

  explicit Extent(const Named& named)
      : begin(static_cast<const std::byte*>(named.tensor.values)), end(begin), name(named.name) {
    if (!named.tensor.has_keys()) end += named.tensor.count * dtype_bytes(named.tensor.dtype);
  }
  bool is_empty() const noexcept { return begin == end; }
};

bool overlap(const Extent& one, const Extent& next) {
  return std::less<>()(next.begin, one.end);
}

// Most lists are: their tensors were made one after another.
bool are_in_order(std::span<const Named> tensors) {
  const std::byte* end = nullptr;
  for (const Named& named : tensors) {
    const Extent extent(named);
    if (std::less<>()(extent.begin, end)) return false;
    end = extent.end;
  }
  return true;
}

}  // namespace

Status check_names(std::span<const Named> tensors) {
  const std::vector<const Named*> sorted = by_name(tensors);
  const auto twice = std::ranges::adjacent_find(sorted, {}, [](const Named* each) { return each->name; });
  return twice == sorted.end() ? Status{} : called_alike((*twice)->name);
}

Status check_parts(std::span<const Named> parts) {
  const std::vector<const Named*> sorted = by_name(parts);
  const auto one = std::ranges::adjacent_find(sorted, [](const Named* part, const Named* next) {
    return part->name == next->name &&
           next->first - part->first < std::max<std::uint64_t>(part->tensor.elements(), 1);
  });
  if (one == sorted.end()) return {};
  const std::uint64_t at = (*std::next(one))->first;
  if (at == (*one)->first) return called_alike((*one)->name);
  return invalid("two parts of '" + std::string((*one)->name) + "' have element " + std::to_string(at) +
                 "; residuals belong to parts, so cut the tensor without overlaps");
}

Status check_apart(std::span<const Named> tensors) {
  if (are_in_order(tensors)) return {};
  std::vector<Extent> extents;
  extents.reserve(tensors.size());
  for (const Named& named : tensors) {
    if (const Extent extent(named); !extent.is_empty()) extents.push_back(extent);
  }
  std::ranges::sort(extents, std::less<>(), &Extent::begin);
  const auto shared = std::ranges::adjacent_find(extents, overlap);
  if (shared == extents.end()) return {};
  return invalid("'" + std::string(shared->name) + "' and '" + std::string(std::next(shared)->name) +
                 "' share memory, and both are written; give one of them, or a copy");
}

Status check_apart(std::span<const Named> tensors, Bytes message) {
  const auto meets = [&](const void* values, std::uint64_t bytes) {
    const auto* begin = static_cast<const std::byte*>(values);
    return begin != nullptr && std::less<>()(begin, message.data() + message.size()) &&
           std::less<>()(message.data(), begin + bytes);
  };
  for (const Named& named : tensors) {
    const TensorSlot& tensor = named.tensor;
    if (meets(tensor.values, tensor.count * dtype_bytes(tensor.dtype)) ||
        meets(tensor.keys, tensor.count * sizeof *tensor.keys) ||
        meets(tensor.significance, tensor.count * sizeof *tensor.significance)) {
      return invalid("'" + std::string(named.name) +
                     "' and the message share memory; give one of them other memory");
    }
  }
  return {};
}

std::string in_words(std::span<const Named> tensors) {
  constexpr std::size_t kShown = 4;
  std::string words;
  for (const auto& tensor : tensors.first(std::min(tensors.size(), kShown))) {
    const std::uint64_t count = tensor.tensor.elements();
    words += (words.empty() ? "'" : ", '") + std::string(tensor.name) + "' ";
    words += dtype_name(tensor.own_dtype());
    const char* before = " ";
    for (const std::uint64_t dim : tensor.tensor.dims.empty() ? std::span(&count, 1) : tensor.tensor.dims) {
      words += std::exchange(before, " x ") + std::to_string(dim);
    }
  }
  return words + (tensors.size() > kShown ? ", ..." : "");
}

}  // namespace deltawire
