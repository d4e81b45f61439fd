#include "reduce/tensor_parts.h"

#include <cassert>
#include <cstddef>

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

}  // namespace deltawire
