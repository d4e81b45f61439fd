// CRC-32C (Castagnoli; RFC 3720, appendix B.4): the checksum of headers and chunks. Against accidents, not
// against attackers. Finds every odd number of flipped bits, every 2-bit flip within 256 MiB and every
// burst of up to 32 bits.
#pragma once

#include <cstdint>
#include <span>

namespace deltawire {

// The checksum of `bytes`, continued from `seed` (0 to start; crc32c(b, crc32c(a)) = crc32c(a + b)).
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed = 0) noexcept;

// The table-driven twin that the fast path is tested against.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t seed = 0) noexcept;

}  // namespace deltawire
