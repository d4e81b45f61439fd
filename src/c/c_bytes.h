// Bytes that a call of the C interface hands out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "deltawire/deltawire.h"

struct deltawire_bytes {
  std::vector<std::byte> bytes;
};
