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
// What a state of the register becomes when `bytes` zero bytes are read: the sum (xor) of what its four bytes
// become, each looked up.
class ZeroBytes {
 public:
  explicit constexpr ZeroBytes(std::size_t bytes) noexcept {
    // Column i: what bit i alone becomes. Reading is linear, so twice as many bytes are the columns applied
    // to themselves.
    std::array<std::uint32_t, 32> columns{};
    for (std::size_t bit = 0; bit < 32; ++bit) {
      const std::uint32_t state = 1U << bit;
      columns[bit] = (state >> 8) ^ kTables[0][state & 0xFF];
    }
    for (std::size_t reach = 1; reach < bytes; reach *= 2) {
      const auto once = columns;
      for (std::uint32_t& column : columns) column = applied(once, column);
    }
    for (std::size_t at = 0; at < 4; ++at) {
      for (std::uint32_t value = 0; value < 256; ++value) {
        of_byte_[at][value] = applied(columns, value << (8 * at));
      }
    }
  }

  std::uint32_t after(std::uint32_t state) const noexcept {
    return of_byte_[0][state & 0xFF] ^ of_byte_[1][state >> 8 & 0xFF] ^ of_byte_[2][state >> 16 & 0xFF] ^
           of_byte_[3][state >> 24];
  }

 private:
  static constexpr std::uint32_t applied(const std::array<std::uint32_t, 32>& columns,
                                         std::uint32_t state) noexcept {
    std::uint32_t sum = 0;
    for (std::size_t bit = 0; bit < 32; ++bit) sum ^= (state >> bit & 1) != 0 ? columns[bit] : 0;
    return sum;
  }

  std::array<std::array<std::uint32_t, 256>, 4> of_byte_{};
};

constexpr std::size_t kLongLane = 1024;  // powers of two
constexpr std::size_t kShortLane = 128;
constexpr ZeroBytes kAfterLongLane(kLongLane);
constexpr ZeroBytes kAfterShortLane(kShortLane);

// The instruction takes three cycles, but one can begin in each: so three lanes of a block are read side by
// side, and what a lane came to is moved past those behind it.
__attribute__((target("sse4.2"))) std::uint32_t update_lanes(std::uint32_t crc, const std::byte* block,
                                                             std::size_t lane,
                                                             const ZeroBytes& after_lane) noexcept {
  std::uint64_t first = crc;
  std::uint64_t second = 0;
  std::uint64_t third = 0;
  for (std::size_t i = 0; i < lane; i += 8) {
    first = __builtin_ia32_crc32di(first, load_le<std::uint64_t>(block + i));
    second = __builtin_ia32_crc32di(second, load_le<std::uint64_t>(block + lane + i));
    third = __builtin_ia32_crc32di(third, load_le<std::uint64_t>(block + 2 * lane + i));
  }
  const std::uint32_t two =
      after_lane.after(static_cast<std::uint32_t>(first)) ^ static_cast<std::uint32_t>(second);
  return after_lane.after(two) ^ static_cast<std::uint32_t>(third);
}

__attribute__((target("sse4.2"))) std::uint32_t update_sse42(std::uint32_t crc,
                                                             std::span<const std::byte> bytes) noexcept {
  std::size_t i = 0;
  for (; i + 3 * kLongLane <= bytes.size(); i += 3 * kLongLane) {
    crc = update_lanes(crc, bytes.data() + i, kLongLane, kAfterLongLane);
  }
  for (; i + 3 * kShortLane <= bytes.size(); i += 3 * kShortLane) {
    crc = update_lanes(crc, bytes.data() + i, kShortLane, kAfterShortLane);
  }
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
