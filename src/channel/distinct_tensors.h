// Which tensors can't be coded or exchanged together, and what errors call tensors.
#pragma once

#include <span>
#include <string>

#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// kInvalidArgument for two tensors of one name, to which their residuals belong.
Status check_names(std::span<const Named> tensors);

// The same for parts: those of one tensor have one name, and must not overlap.
Status check_parts(std::span<const Named> parts);

// kInvalidArgument for two tensors that share memory, of those that will be written: pairs are not.
Status check_apart(std::span<const Named> tensors);

// The same for a tensor of any form that shares memory with a message, of which one is written.
Status check_apart(std::span<const Named> tensors, Bytes message);

// The first of these tensors: "'w' float32 10 x 32, 'b' float32 10".
std::string in_words(std::span<const Named> tensors);

}  // namespace deltawire
