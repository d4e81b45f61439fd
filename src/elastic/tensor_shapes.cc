#include "elastic/tensor_shapes.h"

#include <algorithm>
#include <cassert>

namespace deltawire::elastic {
namespace {

std::string text_of(std::span<const TensorShape> list, std::size_t at) {
  if (at >= list.size()) return "none";
  std::string dims;
  for (const std::uint64_t dim : list[at].dims) dims += (dims.empty() ? "" : ", ") + std::to_string(dim);
  return "'" + list[at].name + "' of shape [" + dims + "]";
}

}  // namespace

TensorShape shape_of(const Named& tensor) {
  TensorShape shape{std::string(tensor.name), {tensor.tensor.dims.begin(), tensor.tensor.dims.end()}};
  if (shape.dims.empty()) shape.dims.push_back(tensor.tensor.elements());
  return shape;
}

std::vector<Named> as_named(std::span<const TensorShape> shapes) {
  std::vector<Named> all;
  all.reserve(shapes.size());
  for (const TensorShape& shape : shapes) {
    Named& named = all.emplace_back();
    named.name = shape.name;
    named.tensor.dims = shape.dims;
    named.tensor.count = 1;
    for (const std::uint64_t dim : shape.dims) named.tensor.count *= dim;
  }
  return all;
}

void add_tensor(std::vector<TensorShape>& list, const TensorShape& tensor) {
  if (std::ranges::find(list, tensor.name, &TensorShape::name) == list.end()) list.push_back(tensor);
}

void replace_tensor(std::vector<TensorShape>& list, const TensorShape& tensor) {
  const auto at = std::ranges::find(list, tensor.name, &TensorShape::name);
  if (at == list.end()) {
    list.push_back(tensor);
  } else if (at->dims != tensor.dims) {
    at->dims = tensor.dims;
  }
}

std::string difference(std::span<const TensorShape> theirs, std::span<const TensorShape> own) {
  std::size_t at = 0;
  while (at < theirs.size() && at < own.size() && theirs[at] == own[at]) ++at;
  assert(at < theirs.size() || at < own.size());
  return text_of(theirs, at) + " as tensor " + std::to_string(at) + ", and this process " + text_of(own, at);
}

}  // namespace deltawire::elastic
