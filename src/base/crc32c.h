// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of headers and chunks. It detects accidents, not
// attacks: every odd number of flipped bits, every 2-bit flip within 256 MiB and every burst of up to 32
// bits.
#pragma once

#include <cstdint>
#include <span>

#include "deltawire/workers.h"

namespace deltawire {

// The checksum of `bytes`, continued from `seed` (0 to start; crc32c(b, crc32c(a)) = crc32c(a + b)).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0) noexcept;

// crc32c(a + b) from crc32c(a), crc32c(b) and the number of bytes in b. So threads can checksum pieces, and
// crc32c(b, seed) follows from crc32c(b).
std::uint32_t crc32c_joined(std::uint32_t a, std::uint32_t b, std::uint32_t bytes_of_b) noexcept;

// The same as crc32c(), with several threads for long inputs. `workers` may be null.
std::uint32_t crc32c_shared(std::span<const std::byte> bytes, std::uint32_t seed, Workers* workers) noexcept;

// The implementations that run on this CPU, from the table-driven one, which runs everywhere, to the fastest
// for long inputs: for tests that compare them.
struct Crc32cWay {
  const char* name;
  std::uint32_t (*checksum)(std::span<const std::byte> bytes, std::uint32_t seed) noexcept;
};
std::span<const Crc32cWay> crc32c_ways() noexcept;

}  // namespace deltawire
