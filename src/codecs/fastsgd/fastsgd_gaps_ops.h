// What vector kernels read keys with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codecs/fastsgd/fastsgd_ops.h"

namespace deltawire::fastsgd::DELTAWIRE_TARGET {

// What must be readable of a stream and what is behind it: copied to where it is, with zeros behind it, if it
// lies too near to the chunk's end.
template <std::uint64_t kBytes>
struct Readable {
  std::byte copy[kBytes];

  [[gnu::always_inline]] const std::byte* of(const std::byte* at, const std::byte* end,
                                             std::uint64_t bytes) noexcept {
    const auto left = static_cast<std::uint64_t>(end > at ? end - at : 0);
    if (bytes <= left) return at;
    std::memset(copy, 0, bytes);
    if (left > 0) std::memcpy(copy, at, left);
    return copy;
  }
};

[[gnu::always_inline]] inline void fill_gaps(GapStream& gaps, unsigned key_bits,
                                             unsigned flag_bits) noexcept {
  const GapLengths of(key_bits, flag_bits);
  gaps.flag_bits = flag_bits;
  gaps.key_bits = key_bits;
  for (unsigned flag = 0; flag < 1U << flag_bits; ++flag) {
    gaps.masks[flag] = (1U << of.of_flag[flag]) - 1;
    gaps.least[flag] = static_cast<std::uint32_t>(of.least[flag]);
  }
}

// Keys in a row: nothing is written of gaps of 0.
[[gnu::always_inline]] inline void follow_on(KeyRun& run) noexcept {
  for (std::uint32_t i = 0; i < run.count; ++i) run.keys[i] = static_cast<std::uint32_t>(run.key + 1 + i);
  run.key += run.count;
}

}  // namespace deltawire::fastsgd::DELTAWIRE_TARGET
