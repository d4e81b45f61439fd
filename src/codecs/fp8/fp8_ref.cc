#include <cstdint>

#include "codecs/fp8/fp8_ops.h"

namespace deltawire::fp8::DELTAWIRE_TARGET {

namespace {

constexpr unsigned kSign = 7;  // its bit

std::uint32_t sum_up(const Addends& x) {
  return add_up(x);
}

void encode(const Addends& x, const Shape& shape, std::byte* chunk) {
  std::byte* codes = chunk + shape.blocks(x.count);
  for (std::uint64_t at = 0; at < x.count; at += shape.block) {
    const std::uint64_t count = x.count - at < shape.block ? x.count - at : shape.block;
    *chunk++ = encode_minifloats(some_of(x, at, count), shape, kSign, codes + at);
  }
}

std::uint64_t find_bad_scale(const std::byte* chunk, std::uint64_t count, const Shape& shape) {
  return first_bad_scale(chunk, count, shape);
}

std::uint64_t find_bad_code(const std::byte* chunk, std::uint64_t count, const Shape& shape) {
  const std::byte* codes = chunk + shape.blocks(count);
  std::uint64_t i = 0;
  while (i < count && (static_cast<unsigned>(codes[i]) & 0x7F) <= shape.format.largest) ++i;
  return i;
}

// Calls store(i, value) for each value of a chunk.
template <class Store>
[[gnu::always_inline]] inline void decode(const std::byte* chunk, std::uint64_t count, const Shape& shape,
                                          Store store) noexcept {
  const std::byte* codes = chunk + shape.blocks(count);
  for (std::uint64_t at = 0; at < count; at += shape.block) {
    const std::uint64_t some = count - at < shape.block ? count - at : shape.block;
    decode_minifloats(codes + at, some, *chunk++, shape.format, kSign,
                      [&](std::uint64_t i, float value) { store(at + i, value); });
  }
}

void decode_overwrite(const std::byte* chunk, std::uint64_t count, const Shape& shape, float scale,
                      float* slot) {
  decode(chunk, count, shape, [&](std::uint64_t i, float value) { slot[i] = scale * value; });
}

void decode_accumulate(const std::byte* chunk, std::uint64_t count, const Shape& shape, float scale,
                       float* slot) {
  decode(chunk, count, shape, [&](std::uint64_t i, float value) { slot[i] += scale * value; });
}

}  // namespace

extern constexpr Kernels kKernels = {sum_up,        encode,           find_bad_scale,
                                     find_bad_code, decode_overwrite, decode_accumulate};

}  // namespace deltawire::fp8::DELTAWIRE_TARGET
