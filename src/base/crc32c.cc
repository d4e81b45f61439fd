#include "base/crc32c.h"

#include <array>
#include <bit>
#include <cstddef>

#include "base/little_endian.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // 0x1EDC6F41, bits reversed

// kTables[k][b]: the effect of byte b that stands k bytes before the end of an 8-byte group.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t b = 0; b < 256; ++b) {
    std::uint32_t crc = b;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][b] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k) {
    for (std::size_t b = 0; b < 256; ++b) {
      const std::uint32_t previous = tables[k - 1][b];
      tables[k][b] = (previous >> 8) ^ tables[0][previous & 0xFF];
    }
  }
  return tables;
}();

std::uint32_t update_byte(std::uint32_t crc, std::byte value) noexcept {
  return (crc >> 8) ^ kTables[0][(crc ^ std::to_integer<std::uint32_t>(value)) & 0xFF];
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t update_sse42(std::uint32_t crc,
                                                             std::span<const std::byte> bytes) noexcept {
  std::size_t i = 0;
  std::uint64_t wide = crc;
  for (; i + 8 <= bytes.size(); i += 8) {
    wide = __builtin_ia32_crc32di(wide, load_le<std::uint64_t>(bytes.data() + i));
  }
  crc = static_cast<std::uint32_t>(wide);
  for (; i < bytes.size(); ++i) {
    crc = __builtin_ia32_crc32qi(crc, std::to_integer<unsigned char>(bytes[i]));
  }
  return crc;
}
#endif

}  // namespace

std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t seed) noexcept {
  std::uint32_t crc = ~seed;
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    const std::uint64_t word = load_le<std::uint64_t>(bytes.data() + i) ^ crc;
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xFF];
  }
  for (; i < bytes.size(); ++i) crc = update_byte(crc, bytes[i]);
  return ~crc;
}

std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t seed) noexcept {
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2") != 0;
  if (has_sse42) return ~update_sse42(~seed, bytes);
#endif
  return crc32c_portable(bytes, seed);
}

}  // namespace deltawire
