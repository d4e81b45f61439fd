// XXH64 with the seed 0, in steps: a pass over weights that looks at them anyway hashes them too, without
// another load. The digest is that of patch_coding.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/little_endian.h"

namespace deltawire::patch {

inline constexpr std::uint64_t kXxhPrime1 = 0x9E3779B185EBCA87;
inline constexpr std::uint64_t kXxhPrime2 = 0xC2B2AE3D27D4EB4F;
inline constexpr std::uint64_t kXxhPrime3 = 0x165667B19E3779F9;
inline constexpr std::uint64_t kXxhPrime4 = 0x85EBCA77C2B2AE63;
inline constexpr std::uint64_t kXxhPrime5 = 0x27D4EB2F165667C5;
inline constexpr std::uint64_t kStripeBytes = 32;

[[gnu::always_inline]] inline std::uint64_t rotated_left(std::uint64_t number, unsigned bits) noexcept {
  return number << bits | number >> (64 - bits);
}

[[gnu::always_inline]] inline std::uint64_t xxh_round(std::uint64_t lane, std::uint64_t input) noexcept {
  return rotated_left(lane + input * kXxhPrime2, 31) * kXxhPrime1;
}

struct Stripes {
  std::uint64_t lane0 = kXxhPrime1 + kXxhPrime2;
  std::uint64_t lane1 = kXxhPrime2;
  std::uint64_t lane2 = 0;
  std::uint64_t lane3 = 0 - kXxhPrime1;

  // REQUIRES: a whole number of stripes.
  [[gnu::always_inline]] void add(const std::byte* at, std::uint64_t bytes) noexcept {
    for (const std::byte* const end = at + bytes; at != end; at += kStripeBytes) {
      lane0 = xxh_round(lane0, load_le<std::uint64_t>(at));
      lane1 = xxh_round(lane1, load_le<std::uint64_t>(at + 8));
      lane2 = xxh_round(lane2, load_le<std::uint64_t>(at + 16));
      lane3 = xxh_round(lane3, load_le<std::uint64_t>(at + 24));
    }
  }

  // The digest of `all` bytes, of which the last `bytes` at `at` were not added.
  [[gnu::always_inline]] std::uint64_t digest(const std::byte* at, std::uint64_t bytes,
                                              std::uint64_t all) noexcept {
    const std::uint64_t whole = bytes / kStripeBytes * kStripeBytes;
    add(at, whole);
    std::uint64_t digest = kXxhPrime5;
    if (all >= kStripeBytes) {
      digest =
          rotated_left(lane0, 1) + rotated_left(lane1, 7) + rotated_left(lane2, 12) + rotated_left(lane3, 18);
      const std::uint64_t lanes[] = {lane0, lane1, lane2, lane3};
      for (const std::uint64_t lane : lanes) {
        digest = (digest ^ xxh_round(0, lane)) * kXxhPrime1 + kXxhPrime4;
      }
    }
    digest += all;
    std::uint64_t left = bytes - whole;
    for (at += whole; left >= 8; left -= 8, at += 8) {
      digest ^= xxh_round(0, load_le<std::uint64_t>(at));
      digest = rotated_left(digest, 27) * kXxhPrime1 + kXxhPrime4;
    }
    if (left >= 4) {
      digest ^= load_le<std::uint32_t>(at) * kXxhPrime1;
      digest = rotated_left(digest, 23) * kXxhPrime2 + kXxhPrime3;
      left -= 4;
      at += 4;
    }
    for (; left > 0; --left, ++at) {
      digest ^= static_cast<std::uint64_t>(*at) * kXxhPrime5;
      digest = rotated_left(digest, 11) * kXxhPrime1;
    }
    digest = (digest ^ digest >> 33) * kXxhPrime2;
    digest = (digest ^ digest >> 29) * kXxhPrime3;
    return digest ^ digest >> 32;
  }
};

}  // namespace deltawire::patch
