// The names and shapes of tensors, without their values.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "deltawire/tensor.h"
#include "elastic/messages.h"

namespace deltawire::elastic {

TensorShape shape_of(const Named& tensor);
// In the shapes' memory. Without values.
std::vector<Named> as_named(std::span<const TensorShape> shapes);
// Appends it unless the list has one of its name.
void add_tensor(std::vector<TensorShape>& list, const TensorShape& tensor);
// In the place of the one of its name, or behind all.
void replace_tensor(std::vector<TensorShape>& list, const TensorShape& tensor);
// "'<name>' of shape [..] as tensor <n>, and this process '<name>' of shape [..]": the first difference of
// two lists that differ.
std::string difference(std::span<const TensorShape> theirs, std::span<const TensorShape> own);

}  // namespace deltawire::elastic
