// Policies: which tensors a codec is used for, and what becomes of values that it can't carry.
#pragma once

#include <cstdint>

namespace deltawire {

// What becomes of a part whose values (with what waits in its residual) are not finite, where its codec
// carries finite values only: an overflow, as a dynamic loss scale provokes on purpose.
enum class NonFinite : std::uint8_t {
  kError,  // kNotFinite, or kRange where an intermediate value overflows: the step fails on every rank
  kPass,   // the part arrives as NaN, every element, on all ranks
};

// Fixed for a job; both ends must agree (it enters the frame's params_hash).
struct Policy {
  // Parts below this many elements travel raw, as fp32: a header costs more than
  // they could save. 0 compresses everything. 3LC, section 4.2, leaves small layers out for the same reason.
  std::uint64_t min_elements = 256;

  NonFinite nonfinite = NonFinite::kError;
};

}  // namespace deltawire
