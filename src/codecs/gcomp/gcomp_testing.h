// What the tests of gcomp share: encoding with a significance.
#pragma once

#include <vector>

#include "codecs/codec_testing.h"

namespace deltawire::testing {

// Encodes `values` with `significance`, one number for each of them, or none at all.
inline Encoded encode_significant(const Codec& codec, std::span<const float> values,
                                  std::span<const float> significance) {
  TensorView part{values.data(), values.size(), DType::kF32};
  part.significance = significance.empty() ? nullptr : significance.data();
  const Sizes sizes = codec.sizes(part);
  Encoded out;
  out.payload.resize(sizes.payload_bytes);
  out.chunk_ends.resize(sizes.chunks);
  std::vector<std::byte> scratch(sizes.scratch_bytes);
  const EncodedPart written =
      codec.encode(part, {}, {out.payload, out.chunk_ends}, {.scratch = scratch}).value();
  out.payload.resize(written.payload_bytes);
  out.scalar = written.scalar;
  return out;
}

inline std::vector<float> significant_round_trip(std::string_view spec, const std::vector<float>& values,
                                                 const std::vector<float>& significance) {
  const auto codec = codec_of(spec);
  const Encoded part = encode_significant(*codec, values, significance);
  return decode(*codec, part.view(), values.size()).value();
}

}  // namespace deltawire::testing
