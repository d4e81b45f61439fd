// Bytes that a call of the C interface returns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "deltawire/deltawire.h"

struct deltawire_bytes {
  std::vector<std::byte> bytes;
};
