#include "deltawire/tensor.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <string>

#include "base/errors.h"

namespace deltawire {
namespace {

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

std::string_view dtype_name(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32: return "float32";
    case DType::kBF16: return "bfloat16";
    case DType::kF16: return "float16";
  }
  return "unknown";
}

std::uint64_t dtype_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::kF32: return 4;
    case DType::kBF16:
    case DType::kF16: return 2;
  }
  return 0;
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

}  // namespace deltawire
