// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of headers and chunks. Against accidents, not
// against attackers. Finds every odd number of flipped bits, every 2-bit flip within 256 MiB and every
// burst of up to 32 bits.
#pragma once

#include <cstdint>
#include <span>

namespace deltawire {

// The checksum of `bytes`, continued from `seed` (0 to start; crc32c(b, crc32c(a)) = crc32c(a + b)).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0) noexcept;

// The ways of this CPU to compute it, from the table-driven one, which runs everywhere, to the one that is
// best for long inputs: for the tests that compare them.
struct Crc32cWay {
  const char* name;
  std::uint32_t (*checksum)(std::span<const std::byte> bytes, std::uint32_t seed) noexcept;
};
std::span<const Crc32cWay> crc32c_ways() noexcept;

}  // namespace deltawire
