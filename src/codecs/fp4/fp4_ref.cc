#include <cstddef>
#include <cstdint>

#include "codecs/fp4/fp4_ops.h"

namespace deltawire::fp4::DELTAWIRE_TARGET {

namespace {

constexpr unsigned kSign = 3;  // its bit

std::uint32_t sum_up(const Addends& x) {
  return add_up(x);
}

// Two codes a byte, the first of them in the lower half.
void pack(const std::byte* codes, std::uint64_t count, std::byte* packed) noexcept {
  for (std::uint64_t i = 0; i < count / 2; ++i) packed[i] = codes[2 * i] | codes[2 * i + 1] << 4;
  if (count % 2 != 0) packed[count / 2] = codes[count - 1];
}

void unpack(const std::byte* packed, std::uint64_t count, std::byte* codes) noexcept {
  for (std::uint64_t i = 0; i < count / 2; ++i) {
    codes[2 * i] = packed[i] & std::byte{0xF};
    codes[2 * i + 1] = packed[i] >> 4;
  }
  if (count % 2 != 0) codes[count - 1] = packed[count / 2];
}

void encode(const Addends& x, const Shape& shape, std::byte* chunk) {
  std::byte* packed = chunk + shape.blocks(x.count);
  for (std::uint64_t at = 0; at < x.count; at += shape.block) {
    const std::uint64_t count = x.count - at < shape.block ? x.count - at : shape.block;
    std::byte codes[kLargestMinifloatBlock];
    *chunk++ = encode_minifloats(some_of(x, at, count), shape, kSign, codes);
    pack(codes, count, packed + at / 2);
  }
}

std::uint64_t find_bad_scale(const std::byte* chunk, std::uint64_t count, const Shape& shape) {
  return first_bad_scale(chunk, count, shape);
}

// Every code is a finite number.
std::uint64_t find_bad_code(const std::byte*, std::uint64_t count, const Shape&) {
  return count;
}

// Calls store(i, value) for each value of a chunk.
template <class Store>
[[gnu::always_inline]] inline void decode(const std::byte* chunk, std::uint64_t count, const Shape& shape,
                                          Store store) noexcept {
  const std::byte* packed = chunk + shape.blocks(count);
  for (std::uint64_t at = 0; at < count; at += shape.block) {
    const std::uint64_t some = count - at < shape.block ? count - at : shape.block;
    std::byte codes[kLargestMinifloatBlock];
    unpack(packed + at / 2, some, codes);
    decode_minifloats(codes, some, *chunk++, shape.format, kSign,
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

}  // namespace deltawire::fp4::DELTAWIRE_TARGET
