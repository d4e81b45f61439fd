// The sum of key-value tensors, one list after another.
#pragma once

#include "deltawire/tensor.h"

namespace deltawire {

// sum += addend; a key that only one of them has keeps its value, bit for bit. `spare` is memory to work in.
// The keys of both grow strictly.
void add_pairs(Pairs& sum, const Pairs& addend, Pairs& spare);

}  // namespace deltawire
