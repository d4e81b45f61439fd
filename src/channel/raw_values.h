// Raw parts whose bytes are their values as they lie in memory. A message of many small tensors has thousands
// of them, and each should cost little more than its copy.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstdint>
#include <cstring>
#include <span>

#include "base/little_endian.h"
#include "base/prefetch.h"
#include "deltawire/codec.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Where decoded values go.
struct Target {
  Into into = Into::kOverwrite;
  float scale = 1.0F;
};

// Whether the codec of raw parts, fp32, only copies the tensor's values, into one chunk.
inline bool has_raw_values(const TensorSlot& tensor) noexcept {
  constexpr std::uint64_t kChunkElements = 65536;
  return tensor.dtype == DType::kF32 && !tensor.has_keys() && tensor.count <= kChunkElements;
}

// What Codec::sizes() gives for such a tensor.
inline Sizes raw_sizes(const TensorSlot& tensor) noexcept {
  return {.payload_bytes = sizeof(float) * tensor.count, .chunks = 1};
}

// What Codec::decode() of fp32 makes of a tensor's bytes. REQUIRES: the defined floating-point mode, and a
// tensor with raw values, however many.
inline void take_raw_values(Bytes values, const TensorSlot& tensor, const Target& target) noexcept {
  assert(tensor.dtype == DType::kF32 && values.size() == sizeof(float) * tensor.count);
  auto* const slot = static_cast<float*>(tensor.values);
  const auto value_at = [&](std::uint64_t i) {
    return std::bit_cast<float>(load_le<std::uint32_t>(values.data() + i * sizeof(float)));
  };
  if (target.into == Into::kAccumulate) {
    for (std::uint64_t i = 0; i < tensor.count; ++i) slot[i] += target.scale * value_at(i);
  } else if (target.scale == 1.0F) {
    std::memcpy(slot, values.data(), values.size());
  } else {
    for (std::uint64_t i = 0; i < tensor.count; ++i) slot[i] = target.scale * value_at(i);
  }
}

// What take_raw_values of one tensor after another adds to zeros: their sum, where all are there. REQUIRES:
// the defined floating-point mode; each has as many values as the sum.
inline void sum_raw_values(std::span<const std::byte* const> addends, float scale,
                           std::span<float> sum) noexcept {
  const auto value_at = [](const std::byte* values, std::size_t i) {
    return std::bit_cast<float>(load_le<std::uint32_t>(values + i * sizeof(float)));
  };
  // 0 + -0 is 0.
  std::size_t at = 0;
  for (std::array<float, 16> line; at + line.size() <= sum.size(); at += line.size()) {
    line.fill(0);
    for (const std::byte* const addend : addends) {
      const std::byte* const values = addend + at * sizeof(float);
      prefetch_page(values, sizeof line);
      for (std::size_t i = 0; i < line.size(); ++i) line[i] += scale * value_at(values, i);
    }
    std::ranges::copy(line, sum.begin() + static_cast<std::ptrdiff_t>(at));
  }
  for (; at < sum.size(); ++at) {
    sum[at] = 0;
    for (const std::byte* const addend : addends) sum[at] += scale * value_at(addend, at);
  }
}

}  // namespace deltawire
