// Chunks by rows, for vector kernels: what quantizes a full row of 320 elements also serves the last one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/bit_functions.h"
#include "base/little_endian.h"
#include "codecs/threelc/threelc_ops.h"

namespace deltawire::threelc {

// Of a full row: bit j of word p belongs to element 64 p + j.
struct RowDigits {
  std::uint64_t positive[kDigitsPerByte];
  std::uint64_t negative[kDigitsPerByte];
};

// Counts zero bytes and their runs, row by row.
struct ZeroCounter {
  std::uint32_t bytes = 0;
  std::uint32_t runs = 0;
  std::uint64_t in_run = 0;  // 1: the byte before was a zero byte

  // `zeros`: which of the row's `stride` bytes are zero bytes. Bits of pads count for nothing.
  [[gnu::always_inline]] void add(std::uint64_t zeros, std::uint32_t stride) noexcept {
    zeros &= ~std::uint64_t{0} >> (kRowBytes - stride);
    bytes += popcount(zeros);
    runs += popcount(zeros & ~(zeros << 1 | in_run));
    in_run = zeros >> (stride - 1) & 1;
  }
};

[[gnu::always_inline]] inline std::uint32_t store_maps(const RowDigits& digits, const DigitMaps& maps,
                                                       std::uint32_t words) noexcept {
  std::uint32_t nonzeros = 0;
  for (std::uint32_t i = 0; i < words; ++i) {
    const std::uint64_t nonzero = digits.positive[i] | digits.negative[i];
    nonzeros += popcount(nonzero);
    store_le(maps.nonzero + i * 8, nonzero);
    store_le(maps.negative + i * 8, digits.negative[i]);
  }
  return nonzeros;
}

// The digits of a row of `stride` < 64 bytes lie as those of a full row, the first `stride` of each word;
// moves them together.
[[gnu::always_inline]] inline RowDigits closed_up(const RowDigits& apart, std::uint32_t stride) noexcept {
  RowDigits digits{};
  for (std::uint32_t p = 0; p < kDigitsPerByte; ++p) {
    const std::uint32_t word = p * stride / 64;
    const std::uint32_t shift = p * stride % 64;
    digits.positive[word] |= apart.positive[p] << shift;
    digits.negative[word] |= apart.negative[p] << shift;
    if (shift + stride <= 64) continue;
    digits.positive[word + 1] |= apart.positive[p] >> (64 - shift);
    digits.negative[word + 1] |= apart.negative[p] >> (64 - shift);
  }
  return digits;
}

// The elements of a row of `count` < 320, spread so that element j of each fifth lies where it would in a
// full row. Behind them zeros, whose digits are 0 as those of pads are.
[[gnu::always_inline]] inline void spread(const float* from, std::uint32_t count, float* row) noexcept {
  const std::uint32_t stride = packed_bytes(count);
  std::memset(row, 0, kRowElements * sizeof(float));
  for (std::uint32_t p = 0; p * stride < count; ++p) {
    const std::uint32_t left = count - p * stride;
    std::memcpy(row + p * kRowBytes, from + p * stride, (left < stride ? left : stride) * sizeof(float));
  }
}

[[gnu::always_inline]] inline void close_up(const float* row, std::uint32_t count, float* to) noexcept {
  const std::uint32_t stride = packed_bytes(count);
  for (std::uint32_t p = 0; p * stride < count; ++p) {
    const std::uint32_t left = count - p * stride;
    std::memcpy(to + p * stride, row + p * kRowBytes, (left < stride ? left : stride) * sizeof(float));
  }
}

// The last row of a chunk, of fewer than 320 elements, by what does a full one.
template <class QuantizeRow>
[[gnu::always_inline]] inline std::uint64_t quantize_last_row(const QuantizeInput& input, std::byte* packed,
                                                              RowDigits& digits,
                                                              QuantizeRow quantize_row) noexcept {
  alignas(64) float in[kRowElements];
  alignas(64) float residual[kRowElements];
  alignas(64) std::byte row[kRowBytes];
  const std::uint32_t stride = packed_bytes(input.count);
  spread(input.in, input.count, in);
  if (input.residual != nullptr) spread(input.residual, input.count, residual);
  const std::uint64_t zeros =
      quantize_row(QuantizeInput{in, input.residual != nullptr ? residual : nullptr,
                                 input.left != nullptr ? in : nullptr, kRowElements, input.scale},
                   row, digits);
  std::memcpy(packed, row, stride);
  if (input.left != nullptr) close_up(in, input.count, input.left);
  digits = closed_up(digits, stride);
  return zeros;
}

template <class QuantizeRow>
[[gnu::always_inline]] inline Quantized quantize_rows(const QuantizeInput& input, std::byte* packed,
                                                      const DigitMaps& maps,
                                                      QuantizeRow quantize_row) noexcept {
  std::uint32_t nonzeros = 0;
  ZeroCounter zeros;
  RowDigits digits;
  std::uint32_t at = 0;
  for (; at + kRowElements <= input.count; at += kRowElements, packed += kRowBytes) {
    zeros.add(quantize_row(part_of(input, at, kRowElements), packed, digits), kRowBytes);
    if (maps.nonzero == nullptr) continue;
    nonzeros += store_maps(digits, {maps.nonzero + at / 8, maps.negative + at / 8}, kDigitsPerByte);
  }
  if (const std::uint32_t rest = input.count - at; rest > 0) {
    zeros.add(quantize_last_row(part_of(input, at, rest), packed, digits, quantize_row), packed_bytes(rest));
    if (maps.nonzero != nullptr) {
      const DigitMaps last = {maps.nonzero + at / 8, maps.negative + at / 8};
      nonzeros += store_maps(digits, last, map_bytes(rest) / 8);
    }
  }
  return {nonzeros, zeros.bytes, zeros.runs};
}

// Kernels::quantize by Row::quantize<adds, keeps>(input, packed, digits), which does a full row, with a
// residual to add or without, keeps the new one or doesn't, and returns which of the row's bytes are zero
// bytes.
template <class Row>
[[gnu::always_inline]] inline Quantized quantize_by(const QuantizeInput& input, std::byte* packed,
                                                    const DigitMaps& maps) noexcept {
  if (input.residual != nullptr) {
    return input.left != nullptr ? quantize_rows(input, packed, maps, Row::template quantize<true, true>)
                                 : quantize_rows(input, packed, maps, Row::template quantize<true, false>);
  }
  return input.left != nullptr ? quantize_rows(input, packed, maps, Row::template quantize<false, true>)
                               : quantize_rows(input, packed, maps, Row::template quantize<false, false>);
}

}  // namespace deltawire::threelc
