// Codes of a fixed number of bits, each made of one element alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace deltawire {

// The kernels of a codec. A part is one row of codes; `Shape` is a parameter that says what they mean, where
// the codec has one.
template <class... Shape>
struct ElementKernels {
  // payload = the codes of in + residual (null: 0); left = what they leave, in the residual's place or apart
  // from it; null where `residual` is. REQUIRES of a codec that is finite_only: all finite.
  void (*encode)(const float* in, const float* residual, float* left, std::uint64_t count, Shape... shape,
                 std::byte* payload) = nullptr;

  // The first code that no encoder writes, one of padding (from `count` on) included; otherwise the number of
  // codes that the payload has room for. Null in codecs that write all.
  std::uint64_t (*find_refused)(const std::byte* payload, std::uint64_t count) = nullptr;

  // slot = scale * value; where a codec carries NaN, scale 1 keeps its bits.
  void (*decode_overwrite)(const std::byte* payload, std::uint64_t count, Shape... shape, float scale,
                           float* slot) = nullptr;

  // slot = slot + scale * value, two roundings; in a sparse codec a value of 0 leaves the slot's bits.
  void (*decode_accumulate)(const std::byte* payload, std::uint64_t count, Shape... shape, float scale,
                            float* slot) = nullptr;
};

}  // namespace deltawire
