// The codecs that hold the values of a 16-bit tensor in its own 16 bits (docs/reference/format.md, section
// 10).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "deltawire/codec.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

// `bf16` and `fp16`, which in frames of version 2 may replace the codec of a part whose tensor has this
// dtype. Any number of threads may call it.
class HalfCodecs {
 public:
  // Bytes of a value in their payload.
  static constexpr std::uint64_t kValueBytes = 2;

  static Result<HalfCodecs> make();

  // Null for a tensor that is not of 16 bits.
  const Codec* of(const Named& part) const noexcept;

  // Whether the codec for `dtype` carries every value: rounds none to infinity and refuses none. `tensor`
  // holds values of `dtype`, or float32 sums of them.
  static bool carries(DType dtype, const TensorView& tensor) noexcept;

  // `sizes` of a part, with room for what either codec needs instead.
  Sizes with_room(const Named& part, const TensorView& view, Sizes sizes) const noexcept;

 private:
  HalfCodecs(std::unique_ptr<const Codec> bf16, std::unique_ptr<const Codec> fp16)
      : bf16_(std::move(bf16)), fp16_(std::move(fp16)) {}

  std::unique_ptr<const Codec> bf16_;
  std::unique_ptr<const Codec> fp16_;
};

}  // namespace deltawire
