// Variable-length integers for mostly small numbers (LEB128): 7 bits per byte, lowest bits first; bit 7 means
// that more bytes follow. Only the shortest form is valid (docs/reference/format.md, "Conventions").
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace deltawire {

// Removes a number from the front of `bytes`. If they end within it, or it is not in its shortest form, or is
// above `most`, returns nothing and leaves `bytes` unspecified.
inline std::optional<std::uint64_t> take_varint(std::span<const std::byte>& bytes,
                                                std::uint64_t most) noexcept {
  std::uint64_t number = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (bytes.empty()) return std::nullopt;
    const auto byte = std::to_integer<std::uint64_t>(bytes.front());
    bytes = bytes.subspan(1);
    const std::uint64_t bits = byte & 0x7F;
    if (bits > most >> shift) return std::nullopt;
    number |= bits << shift;
    if (byte < 0x80) {
      if ((bits == 0 && shift > 0) || number > most) return std::nullopt;
      return number;
    }
  }
  return std::nullopt;
}

inline void append_varint(std::vector<std::byte>& out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) out.push_back(static_cast<std::byte>(0x80 | (number & 0x7F)));
  out.push_back(static_cast<std::byte>(number));
}

}  // namespace deltawire
