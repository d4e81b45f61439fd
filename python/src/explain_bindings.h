// Tensors of which only names and shapes count.
#pragma once

#include <cstdint>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire::python {

// Name and shape of a float32 tensor; with the name of its dtype.
using TensorNamed = std::variant<std::pair<std::string, std::vector<std::uint64_t>>,
                                 std::tuple<std::string, std::vector<std::uint64_t>, std::string>>;

// Without values. `tensors` must outlive them.
std::vector<Named> as_named(const std::vector<TensorNamed>& tensors);

}  // namespace deltawire::python
