// Policies: which tensors a codec is used for.
#pragma once

#include <cstdint>

namespace deltawire {

// Fixed for a job; both ends must agree (it enters the frame's params_hash).
struct Policy {
  // Parts below this many elements travel as raw fp32 (segment flag `raw`): a header costs more than
  // they could save. 0 compresses everything. 3LC, section 4.2, leaves small layers out for the same reason.
  std::uint64_t min_elements = 256;
};

}  // namespace deltawire
