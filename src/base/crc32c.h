// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of headers and chunks. Against accidents, not
// against attackers. Finds every odd number of flipped bits, every 2-bit flip within 256 MiB and every
// burst of up to 32 bits.
#pragma once

#include <cstdint>
#include <span>

#include "deltawire/workers.h"

namespace deltawire {

// The checksum of `bytes`, continued from `seed` (0 to start; crc32c(b, crc32c(a)) = crc32c(a + b)).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0) noexcept;

// The checksum of a + b, from those of a and b: crc32c(a + b) of crc32c(a), crc32c(b) and the bytes of b. So
// threads can sum pieces, and crc32c(b, seed) follows from crc32c(b).
std::uint32_t crc32c_joined(std::uint32_t a, std::uint32_t b, std::uint32_t bytes_of_b) noexcept;

// The same as crc32c(), long inputs by several threads. `workers` may be null.
std::uint32_t crc32c_shared(std::span<const std::byte> bytes, std::uint32_t seed, Workers* workers) noexcept;

// The ways of this CPU to compute it, from the table-driven one, which runs everywhere, to the one that is
// best for long inputs: for the tests that compare them.
struct Crc32cWay {
  const char* name;
  std::uint32_t (*checksum)(std::span<const std::byte> bytes, std::uint32_t seed) noexcept;
};
std::span<const Crc32cWay> crc32c_ways() noexcept;

}  // namespace deltawire
