// Tensors of which only names and shapes count.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire::python {

using TensorNamed = std::pair<std::string, std::vector<std::uint64_t>>;

// Without values. `tensors` must outlive them.
std::vector<Named> as_named(const std::vector<TensorNamed>& tensors);

}  // namespace deltawire::python
