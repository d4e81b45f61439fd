// The codecs that hold the values of a 16-bit tensor in its own 16 bits (docs/reference/format.md, section
// 10).
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/errors.h"
#include "base/float16.h"
#include "base/float_environment.h"
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

  static Result<HalfCodecs> make() {
    ASSIGN_OR_RETURN(std::unique_ptr<const Codec> bf16, make_codec("bf16"));
    ASSIGN_OR_RETURN(std::unique_ptr<const Codec> fp16, make_codec("fp16"));
    return HalfCodecs(std::move(bf16), std::move(fp16));
  }

  // Null for a tensor that is not of 16 bits.
  const Codec* of(const Named& part) const noexcept {
    switch (part.own_dtype()) {
      case DType::kBF16: return bf16_.get();
      case DType::kF16: return fp16_.get();
      default: return nullptr;
    }
  }

  // Whether the codec for `dtype` carries every value: rounds none to infinity and refuses none. `tensor`
  // holds values of `dtype`, or float32 sums of them.
  static bool carries(DType dtype, const TensorView& tensor) noexcept {
    assert(dtype == DType::kBF16 || dtype == DType::kF16);
    const FloatEnvironment environment;
    std::array<float, kBlock> widened;
    const auto* at = static_cast<const std::byte*>(tensor.values);
    for (std::uint64_t done = 0; done < tensor.count; done += kBlock) {
      const std::uint64_t count = std::min(kBlock, tensor.count - done);
      widen(at, tensor.dtype, count, widened.data());
      const std::span block(widened.data(), count);
      if (first_beyond(block, dtype) != count) return false;
      if (dtype == DType::kF16 &&
          !std::ranges::all_of(block, [](float value) { return std::isfinite(value); })) {
        return false;  // which the codec fp16 refuses
      }
      at += count * dtype_bytes(tensor.dtype);
    }
    return true;
  }

  // `sizes` of a part, with room for what either codec needs instead.
  Sizes with_room(const Named& part, const TensorView& view, Sizes sizes) const noexcept {
    const Codec* half = of(part);
    if (half == nullptr || view.has_keys() || sizes.payload_bytes <= kValueBytes * view.count) return sizes;
    const Sizes halves = half->sizes(view);
    sizes.chunks = std::max(sizes.chunks, halves.chunks);
    sizes.scratch_bytes = std::max(sizes.scratch_bytes, halves.scratch_bytes);
    return sizes;
  }

 private:
  static constexpr std::uint64_t kBlock = 1024;  // values that are widened at once

  HalfCodecs(std::unique_ptr<const Codec> bf16, std::unique_ptr<const Codec> fp16)
      : bf16_(std::move(bf16)), fp16_(std::move(fp16)) {}

  std::unique_ptr<const Codec> bf16_;
  std::unique_ptr<const Codec> fp16_;
};

}  // namespace deltawire
