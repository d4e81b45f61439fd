// Which tensors can't be coded or exchanged together, and what errors call tensors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// kInvalidArgument for two tensors of one name, to which their residuals belong.
Status check_names(std::span<const Named> tensors);

// The same for parts: those of one tensor have one name, and must not overlap.
Status check_parts(std::span<const Named> parts);

// kInvalidArgument for a tensor of any form that shares memory with a message, of which one is written.
Status check_apart(std::span<const Named> tensors, Bytes message);

// The first of these tensors: "'w' float32 10 x 32, 'b' float32 10".
std::string in_words(std::span<const Named> tensors);
// The same of one, of which `dtype` may be empty.
std::string in_words(std::string_view name, std::string_view dtype, std::span<const std::uint64_t> dims);

// A line for each tensor, ended by a line break, and where they are: " on rank 3".
struct ListedTensors {
  std::string_view lines;
  std::string_view where;
};

// Of lists that differ: "tensor 2 is 'w' float32 10 x 32 on rank 3, and none on rank 1".
std::string first_difference(const ListedTensors& one, const ListedTensors& other);

}  // namespace deltawire
