// Raw parts whose bytes are their values as they lie in memory. A message of many small tensors has thousands
// of them, and each should cost little more than its copy.
#pragma once

#include <bit>
#include <cstdint>

#include "channel/decode_runs.h"
#include "deltawire/codec.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Whether the codec of raw parts, fp32, only copies the tensor's values, into one chunk.
inline bool has_raw_values(const TensorSlot& tensor) noexcept {
  constexpr std::uint64_t kChunkElements = 65536;
  return std::endian::native == std::endian::little && tensor.dtype == DType::kF32 && !tensor.has_keys() &&
         tensor.count <= kChunkElements;
}

// What Codec::sizes() gives for such a tensor.
inline Sizes raw_sizes(const TensorSlot& tensor) noexcept {
  return {.payload_bytes = sizeof(float) * tensor.count, .chunks = 1};
}

// What Codec::decode() makes of such a tensor's bytes. REQUIRES: the defined floating-point mode.
void take_raw_values(Bytes values, const TensorSlot& tensor, const Target& target) noexcept;

}  // namespace deltawire
