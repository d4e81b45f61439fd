#include "channel/half_codecs.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <span>

#include "base/errors.h"
#include "base/float16.h"
#include "base/float_environment.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kBlock = 1024;  // values that are widened at once

}  // namespace

Result<HalfCodecs> HalfCodecs::make() {
  ASSIGN_OR_RETURN(std::unique_ptr<const Codec> bf16, make_codec("bf16"));
  ASSIGN_OR_RETURN(std::unique_ptr<const Codec> fp16, make_codec("fp16"));
  return HalfCodecs(std::move(bf16), std::move(fp16));
}

const Codec* HalfCodecs::of(const Named& part) const noexcept {
  switch (part.own_dtype()) {
    case DType::kBF16: return bf16_.get();
    case DType::kF16: return fp16_.get();
    default: return nullptr;
  }
}

bool HalfCodecs::carries(DType dtype, const TensorView& tensor) noexcept {
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

Sizes HalfCodecs::with_room(const Named& part, const TensorView& view, Sizes sizes) const noexcept {
  const Codec* half = of(part);
  if (half == nullptr || view.has_keys() || sizes.payload_bytes <= kValueBytes * view.count) return sizes;
  const Sizes halves = half->sizes(view);
  sizes.chunks = std::max(sizes.chunks, halves.chunks);
  sizes.scratch_bytes = std::max(sizes.scratch_bytes, halves.scratch_bytes);
  return sizes;
}

}  // namespace deltawire
