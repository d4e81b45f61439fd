// fp32: the values themselves, lossless. spec.md in this folder defines the bytes.

#include <bit>
#include <cstring>

#include "base/copying.h"
#include "base/little_endian.h"
#include "codecs/fixed_codec.h"
#include "codecs/registration.h"

namespace deltawire::fp32 {

namespace {

constexpr std::uint64_t kValueBytes = 4;

constexpr CodecInfo kInfo = {
    .id = 1,
    .name = "fp32",
    .summary = "float32 values as they are, lossless",
    .source = "IEEE 754-2019, binary32",
    .default_pattern = "direct",
    .lossless = true,
    .chunk_elements = kFixedChunkElements,
    .at_copy_speed = true,
    .separate_chunks = true,
};

float value_at(const std::byte* payload, std::uint64_t i) noexcept {
  return std::bit_cast<float>(load_le<std::uint32_t>(payload + i * kValueBytes));
}

void encode(const float* in, const float* residual, float* left, std::uint64_t count, std::byte* payload) {
  if (residual == nullptr) {
    // Bits, so that NaN payloads and signs survive; moving floats about wouldn't promise that.
    if (count > 0) std::memcpy(payload, in, count * kValueBytes);
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    store_le(payload + i * kValueBytes, std::bit_cast<std::uint32_t>(in[i] + residual[i]));
    left[i] = 0;
  }
}

void decode_overwrite(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  if (scale == 1.0F) {
    copy_cached(reinterpret_cast<std::byte*>(slot), payload, count * kValueBytes);
    return;
  }
  for (std::uint64_t i = 0; i < count; ++i) slot[i] = scale * value_at(payload, i);
}

void decode_accumulate(const std::byte* payload, std::uint64_t count, float scale, float* slot) {
  for (std::uint64_t i = 0; i < count; ++i) slot[i] += scale * value_at(payload, i);
}

constexpr ElementKernels<> kKernels = {
    .encode = encode, .decode_overwrite = decode_overwrite, .decode_accumulate = decode_accumulate};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec&, TargetId target) {
  return std::make_unique<const ElementwiseCodec<>>(kInfo, kKernels, target, Field{"fp32 values", 32});
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make};

}  // namespace deltawire::fp32
