// The codes of zero runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc {

// The codes of as many runs of 14 as there are in a run; returns where the code of the rest goes.
[[gnu::always_inline]] inline std::byte* write_full_runs(std::byte* out, std::uint32_t run) noexcept {
  const std::uint32_t full = run / kLongestRun;
  if (full > 0) std::memset(out, 0xFF, full);
  return out + full;
}

[[gnu::always_inline]] inline std::byte* write_run(std::byte* out, std::uint32_t run) noexcept {
  if (run >= kLongestRun) out = write_full_runs(out, run);
  const std::uint32_t rest = run % kLongestRun;
  if (rest == 0) return out;
  *out = rest == 1 ? kZeroByte : static_cast<std::byte>(kFirstRun + rest - 2);
  return out + 1;
}

}  // namespace deltawire::threelc
