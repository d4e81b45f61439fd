#include "codecs/fp32/fp32.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/float_environment.h"
#include "base/little_endian.h"
#include "codecs/part_checks.h"

namespace deltawire {

namespace {

constexpr std::uint64_t kValueBytes = 4;
constexpr std::uint64_t kChunkElements = 65536;

float value_at(const std::byte* payload, std::uint64_t i) noexcept {
  return std::bit_cast<float>(load_le<std::uint32_t>(payload + i * kValueBytes));
}

// Copies bits, so that NaN payloads and signs survive; moving floats about wouldn't promise that.
void copy_values(const std::byte* from, std::byte* to, std::uint64_t count) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    if (count > 0) std::memcpy(to, from, count * kValueBytes);
  } else {
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, from + i * kValueBytes, sizeof bits);
      store_le(to + i * kValueBytes, bits);
    }
  }
}

void encode_sums(const float* in, std::span<float> residual, std::byte* payload) noexcept {
  for (std::uint64_t i = 0; i < residual.size(); ++i) {
    store_le(payload + i * kValueBytes, std::bit_cast<std::uint32_t>(in[i] + residual[i]));
    residual[i] = 0;
  }
}

class Fp32 final : public Codec {
 public:
  const CodecInfo& info() const noexcept override { return kFp32Info; }

  std::string spec() const override { return "fp32"; }

  Sizes sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(part.count, kChunkElements, kValueBytes);
  }

  Result<EncodedPart> encode(const TensorView& part, std::span<float> residual,
                             const PartBuffer& out) const override {
    if (auto ok = check_dense(part, kFp32Info.name); !ok) return forward_error(ok);
    if (auto ok = check_residual(residual, part.count); !ok) return forward_error(ok);
    if (auto ok = check_buffer(out, sizes(part)); !ok) return forward_error(ok);
    if (residual.empty()) {
      copy_values(static_cast<const std::byte*>(part.values), out.payload.data(), part.count);
    } else {
      const FloatEnvironment environment;
      encode_sums(static_cast<const float*>(part.values), residual, out.payload.data());
    }
    return write_fixed_ends(part.count, kChunkElements, kValueBytes, out.chunk_ends);
  }

  Status decode(const PartView& in, const TensorSlot& out, Into into, float scale) const override {
    if (auto ok = check_float32(out.dtype, kFp32Info.name); !ok) return ok;
    if (auto ok = check_fixed_size(in, out.count, kChunkElements, kValueBytes); !ok) return ok;
    const FloatEnvironment environment;
    const std::byte* payload = in.payload.data();
    auto* slot = static_cast<float*>(out.values);
    if (into == Into::kAccumulate) {
      for (std::uint64_t i = 0; i < out.count; ++i) slot[i] += scale * value_at(payload, i);
    } else if (scale == 1.0F) {
      copy_values(payload, static_cast<std::byte*>(out.values), out.count);
    } else {
      for (std::uint64_t i = 0; i < out.count; ++i) slot[i] = scale * value_at(payload, i);
    }
    return {};
  }

  Status describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_fixed_size(in, count, kChunkElements, kValueBytes); !ok) return ok;
    add_section(sections, "fp32 values", in.payload.size() * 8);
    return {};
  }
};

}  // namespace

constinit const CodecInfo kFp32Info = {
    .id = 1,
    .name = "fp32",
    .summary = "float32 values as they are, lossless",
    .source = "IEEE 754-2019, binary32",
    .parameters = {},
    .default_pattern = "direct",
    .lossless = true,
    .error_feedback = false,
    .finite_only = false,
    .chunk_elements = kChunkElements,
};

Result<std::unique_ptr<const Codec>> make_fp32(const ParsedSpec&) {
  return std::make_unique<const Fp32>();
}

}  // namespace deltawire
