// fp32: the values themselves, lossless. spec.md in this folder defines the bytes.

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/little_endian.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"

namespace deltawire::fp32 {

namespace {

constexpr std::uint64_t kValueBytes = 4;
constexpr std::uint64_t kChunkElements = 65536;

constexpr CodecInfo kInfo = {
    .id = 1,
    .name = "fp32",
    .summary = "float32 values as they are, lossless",
    .source = "IEEE 754-2019, binary32",
    .default_pattern = "direct",
    .lossless = true,
    .chunk_elements = kChunkElements,
};

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

void encode_sums(const float* in, float* residual, std::uint64_t count, std::byte* payload) noexcept {
  for (std::uint64_t i = 0; i < count; ++i) {
    store_le(payload + i * kValueBytes, std::bit_cast<std::uint32_t>(in[i] + residual[i]));
    residual[i] = 0;
  }
}

class Fp32 final : public Codec {
 public:
  Fp32() noexcept : Codec(kInfo) {}

  std::string spec() const override { return "fp32"; }

  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(part.count, kChunkElements, kValueBytes);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec&) const override {
    if (part.residual == nullptr) {
      copy_values(reinterpret_cast<const std::byte*>(part.in), out.payload.data(), part.count);
    } else {
      encode_sums(part.in, residual_in_place(part), part.count, out.payload.data());
    }
    return write_fixed_ends(part.count, kChunkElements, kValueBytes, out.chunk_ends);
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_fixed_ends(in, out.count, kChunkElements, kValueBytes); !ok) return ok;
    const std::byte* payload = in.payload.data();
    float* slot = out.slot;
    const float scale = out.scale;
    if (out.accumulate) {
      for (std::uint64_t i = 0; i < out.count; ++i) slot[i] += scale * value_at(payload, i);
    } else if (scale == 1.0F) {
      copy_values(payload, reinterpret_cast<std::byte*>(slot), out.count);
    } else {
      for (std::uint64_t i = 0; i < out.count; ++i) slot[i] = scale * value_at(payload, i);
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_fixed_ends(in, count, kChunkElements, kValueBytes); !ok) return ok;
    add_section(sections, "fp32 values", in.payload.size() * 8);
    return {};
  }
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec&, TargetId) {
  return std::make_unique<const Fp32>();
}

}  // namespace

Registration registration() noexcept {
  return {&kInfo, make};
}

}  // namespace deltawire::fp32
