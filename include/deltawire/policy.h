// Policies: which tensors a codec is used for, and what happens to values that it can't carry.
#pragma once

#include <cstdint>

namespace deltawire {

// What happens to a part whose values (plus residual) are not finite if its codec carries only finite values:
// an overflow, as a dynamic loss scale provokes on purpose.
enum class NonFinite : std::uint8_t {
  kError,  // kNotFinite, or kRange if an intermediate value overflows: the step fails on every rank
  kPass,   // every element of the part arrives as NaN, on all ranks
};

// Fixed for a job; both ends must agree (the frame's params_hash covers it).
struct Policy {
  // Parts with fewer elements are sent raw, as fp32: a header costs more than compression could save.
  // 0 compresses everything. 3LC, section 4.2, leaves small layers out for the same reason.
  std::uint64_t min_elements = 256;

  NonFinite nonfinite = NonFinite::kError;
};

}  // namespace deltawire
