#include "channel/distinct_tensors.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
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
  std::ranges::sort(list, {}, [](const Named* each) { return std::tie(each->name, each->first); });
  return list;
}

Status called_alike(std::string_view name) {
  return invalid("two tensors are called '" + std::string(name) +
                 "'; residuals belong to names, so give each one of its own");
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

std::string in_words(std::string_view name, std::string_view dtype, std::span<const std::uint64_t> dims) {
  std::string words = "'" + std::string(name) + "'";
  if (!dtype.empty()) (words += " ") += dtype;
  const char* before = " ";
  for (const std::uint64_t dim : dims) words += std::exchange(before, " x ") + std::to_string(dim);
  return words;
}

std::string in_words(std::span<const Named> tensors) {
  constexpr std::size_t kShown = 4;
  std::string words;
  for (const Named& named : tensors.first(std::min(tensors.size(), kShown))) {
    const std::uint64_t count = named.tensor.elements();
    const auto dims = named.tensor.dims.empty() ? std::span(&count, 1) : named.tensor.dims;
    words += (words.empty() ? "" : ", ") + in_words(named.name, dtype_name(named.own_dtype()), dims);
  }
  return words + (tensors.size() > kShown ? ", ..." : "");
}

std::string first_difference(const ListedTensors& one, const ListedTensors& other) {
  const auto at =
      static_cast<std::size_t>(std::ranges::mismatch(one.lines, other.lines).in1 - one.lines.begin());
  const std::size_t begin = at == 0 ? 0 : one.lines.rfind('\n', at - 1) + 1;
  const auto tensor_in = [&](const ListedTensors& list) {
    std::string_view line = list.lines.substr(std::min(begin, list.lines.size()));
    line = line.substr(0, line.find('\n'));
    return (line.empty() ? "none" : printable_line(line)) + std::string(list.where);
  };
  const auto number = std::ranges::count(one.lines.substr(0, begin), '\n');
  return "tensor " + std::to_string(number) + " is " + tensor_in(one) + ", and " + tensor_in(other);
}

}  // namespace deltawire
