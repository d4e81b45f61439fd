// Reference kernel: zero runs.
#include <cstddef>
#include <cstdint>

#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc::DELTAWIRE_TARGET {

namespace {

// The run of zero bytes that begins at `at`.
std::uint32_t zero_run(const std::byte* packed, std::uint32_t at, std::uint32_t bytes) noexcept {
  std::uint32_t end = at;
  while (end < bytes && packed[end] == kZeroByte) ++end;
  return end - at;
}

}  // namespace

std::uint32_t zero_runs(const std::byte* packed, std::uint32_t bytes, std::byte* out) {
  std::uint32_t written = 0;
  for (std::uint32_t at = 0; at < bytes;) {
    const std::uint32_t run = zero_run(packed, at, bytes);
    if (run == 0) {
      out[written++] = packed[at++];
      continue;
    }
    at += run;
    for (std::uint32_t left = run; left > 0;) {
      const std::uint32_t part = left < kLongestRun ? left : kLongestRun;
      out[written++] = part == 1 ? kZeroByte : static_cast<std::byte>(kFirstRun + part - 2);
      left -= part;
    }
  }
  return written;
}

}  // namespace deltawire::threelc::DELTAWIRE_TARGET
