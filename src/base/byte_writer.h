// Writes numbers, text and float32 values one after another, in the form of saved states and files
// (docs/reference/format.md).
#pragma once

#include <bit>
#include <cassert>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "base/little_endian.h"

namespace deltawire {

// Whoever makes it has room for everything that is written.
class ByteWriter {
 public:
  explicit ByteWriter(std::span<std::byte> room) noexcept : room_(room) {}

  template <std::unsigned_integral T>
  void number(T value) noexcept {
    store_le<T>(take(sizeof(T)), value);
  }
  void text(std::string_view value) noexcept { std::memcpy(take(value.size()), value.data(), value.size()); }
  void floats(std::span<const float> values) noexcept {
    for (const float value : values) number(std::bit_cast<std::uint32_t>(value));
  }

 private:
  std::byte* take(std::size_t bytes) noexcept {
    assert(bytes <= room_.size());
    std::byte* const at = room_.data();
    room_ = room_.subspan(bytes);
    return at;
  }

  std::span<std::byte> room_;
};

// Takes `values` off the front of `rest`.
inline void take_floats(std::span<const std::byte>& rest, std::span<float> values) noexcept {
  assert(rest.size() / 4 >= values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = std::bit_cast<float>(load_le<std::uint32_t>(rest.data() + 4 * i));
  }
  rest = rest.subspan(4 * values.size());
}

inline std::vector<float> take_floats(std::span<const std::byte>& rest, std::uint64_t count) {
  std::vector<float> values(count);
  take_floats(rest, values);
  return values;
}

}  // namespace deltawire
