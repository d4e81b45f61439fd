#include <cstddef>
#include <cstdint>

#include "codecs/minifloat/minifloat_ops.h"

namespace deltawire::minifloat::DELTAWIRE_TARGET {

namespace {

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

// Codes of kBits, of which the highest is the sign.
template <unsigned kBits>
void encode_blocks(const Addends& x, const Shape& shape, std::byte* chunk) noexcept {
  std::byte* const codes = chunk + blocks_of(x.count, shape.block);
  for (std::uint64_t at = 0; at < x.count; at += shape.block) {
    const Addends some = some_of(x, at, x.count - at < shape.block ? x.count - at : shape.block);
    if constexpr (kBits == 8) {
      *chunk++ = encode_minifloats(some, shape, kBits - 1, codes + at);
    } else {
      std::byte apart[kLargestBlock];
      *chunk++ = encode_minifloats(some, shape, kBits - 1, apart);
      pack(apart, some.count, codes + at / 2);
    }
  }
}

void encode(const Addends& x, const Shape& shape, std::byte* chunk) {
  shape.bits == 8 ? encode_blocks<8>(x, shape, chunk) : encode_blocks<4>(x, shape, chunk);
}

std::uint64_t find_bad_scale(const std::byte* chunk, std::uint64_t count, const Shape& shape) {
  const std::uint64_t blocks = blocks_of(count, shape.block);
  std::uint64_t block = 0;
  while (block < blocks && static_cast<unsigned>(chunk[block]) <= shape.largest_scale()) ++block;
  return block;
}

// Every code of 4 bits is a finite number.
std::uint64_t find_bad_code(const std::byte* chunk, std::uint64_t count, const Shape& shape) {
  if (shape.bits == 4) return count;
  const std::byte* const codes = chunk + blocks_of(count, shape.block);
  std::uint64_t i = 0;
  while (i < count && (static_cast<unsigned>(codes[i]) & 0x7F) <= shape.format.largest) ++i;
  return i;
}

// Calls store(i, value) for each value of a chunk.
template <unsigned kBits, class Store>
[[gnu::always_inline]] inline void decode_blocks(const std::byte* chunk, std::uint64_t count,
                                                 const Shape& shape, Store store) noexcept {
  const std::byte* const codes = chunk + blocks_of(count, shape.block);
  for (std::uint64_t at = 0; at < count; at += shape.block) {
    const std::uint64_t some = count - at < shape.block ? count - at : shape.block;
    const auto store_here = [&](std::uint64_t i, float value) { store(at + i, value); };
    if constexpr (kBits == 8) {
      decode_minifloats(codes + at, some, *chunk++, shape.format, kBits - 1, store_here);
    } else {
      std::byte apart[kLargestBlock];
      unpack(codes + at / 2, some, apart);
      decode_minifloats(apart, some, *chunk++, shape.format, kBits - 1, store_here);
    }
  }
}

template <class Store>
[[gnu::always_inline]] inline void decode(const std::byte* chunk, std::uint64_t count, const Shape& shape,
                                          Store store) noexcept {
  shape.bits == 8 ? decode_blocks<8>(chunk, count, shape, store)
                  : decode_blocks<4>(chunk, count, shape, store);
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

}  // namespace deltawire::minifloat::DELTAWIRE_TARGET
