#include <cstdint>

#include "base/bit_functions.h"
#include "base/float_bits.h"
#include "codecs/blockint/blockint_ops.h"

namespace deltawire::blockint::DELTAWIRE_TARGET {

namespace {

[[gnu::always_inline]] inline float value_at(const std::byte* chunk, std::uint64_t i, std::uint64_t count,
                                             const Shape& shape) noexcept {
  const std::byte* codes = chunk + blocks_of(count, shape.block) * kStepBytes;
  const float step = bit_cast<float>(step_bits(chunk, i / shape.block));
  return static_cast<float>(code_at(codes, i, shape.bits)) * step;
}

std::uint32_t sum_up(const Addends& x) {
  return add_up(x);
}

std::byte low_bits(std::int32_t code, std::int32_t bits) noexcept {
  return static_cast<std::byte>(code & bits);
}

// One block, whose codes begin at a whole byte.
void encode_block(const Addends& x, float step, unsigned bits, std::byte* codes) noexcept {
  // Where step is 0 all values are: 1 gives the code 0 without 0/0.
  const float divisor = step > 0 ? step : 1.0F;
  for (std::uint64_t i = 0; i < x.count; ++i) {
    const float sum = sum_at(x, i);
    const std::int32_t code = nearest_multiple(sum, divisor);
    if (bits == 8) {
      codes[i] = low_bits(code, 0xFF);
    } else if (i % 2 == 0) {
      codes[i / 2] = low_bits(code, 0xF);
    } else {
      codes[i / 2] |= low_bits(code, 0xF) << 4;
    }
    if (x.left != nullptr) x.left[i] = sum - static_cast<float>(code) * step;
  }
}

void encode(const Addends& x, const Shape& shape, std::byte* chunk) {
  std::byte* codes = chunk + blocks_of(x.count, shape.block) * kStepBytes;
  for (std::uint64_t at = 0; at < x.count; at += shape.block) {
    const std::uint64_t count = x.count - at < shape.block ? x.count - at : shape.block;
    Addends block = some_of(x, at, count);
    const std::uint32_t largest = largest_magnitude(block.in, block.residual, count);
    const float step = smallest_step(bit_cast<float>(largest), shape.most());
    store_le(chunk + at / shape.block * kStepBytes, bit_cast<std::uint32_t>(step));
    encode_block(block, step, shape.bits, codes + at * shape.bits / 8);
  }
}

std::uint64_t find_bad_scale(const std::byte* chunk, std::uint64_t count, const Shape& shape) {
  const std::uint64_t blocks = blocks_of(count, shape.block);
  std::uint64_t block = 0;
  while (block < blocks && step_bits(chunk, block) <= shape.most().step) ++block;
  return block;
}

std::uint64_t find_bad_code(const std::byte* chunk, std::uint64_t count, const Shape& shape) {
  const std::byte* codes = chunk + blocks_of(count, shape.block) * kStepBytes;
  for (std::uint64_t i = 0; i < count; ++i) {
    const int code = code_at(codes, i, shape.bits);
    if (code < -shape.most().code || (code != 0 && step_bits(chunk, i / shape.block) == 0)) return i;
  }
  return count;
}

void decode_overwrite(const std::byte* chunk, std::uint64_t count, const Shape& shape, float scale,
                      float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] = scale * value_at(chunk, i, count, shape);
}

void decode_accumulate(const std::byte* chunk, std::uint64_t count, const Shape& shape, float scale,
                       float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] += scale * value_at(chunk, i, count, shape);
}

}  // namespace

extern constexpr Kernels kKernels = {sum_up,        encode,           find_bad_scale,
                                     find_bad_code, decode_overwrite, decode_accumulate};

}  // namespace deltawire::blockint::DELTAWIRE_TARGET
