// bf16: the upper 16 bits of each value, rounded to nearest even. spec.md in this folder defines the bytes.

#include "codecs/bf16/bf16_ops.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"

namespace deltawire::bf16 {

namespace {

constexpr std::uint64_t kChunkElements = 65536;

constexpr CodecInfo kInfo = {
    .id = 2,
    .name = "bf16",
    .summary = "upper half of each float32, rounded to nearest even: half the bytes",
    .source = "Intel, BFLOAT16 - Hardware Numerics Definition (2018), sections 1-2",
    .default_pattern = "direct",
    .chunk_elements = kChunkElements,
};

class Bf16 final : public Codec {
 public:
  explicit Bf16(const Kernels& kernels) noexcept : Codec(kInfo), kernels_(kernels) {}

  std::string spec() const override { return "bf16"; }

  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(part.count, kChunkElements, kValueBytes);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec&) const override {
    kernels_.encode(part.in, residual_in_place(part), part.count, out.payload.data());
    return write_fixed_ends(part.count, kChunkElements, kValueBytes, out.chunk_ends);
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_fixed_ends(in, out.count, kChunkElements, kValueBytes); !ok) return ok;
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    kernel(in.payload.data(), out.count, out.scale, out.slot);
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_fixed_ends(in, count, kChunkElements, kValueBytes); !ok) return ok;
    add_section(sections, "bf16 values", in.payload.size() * 8);
    return {};
  }

 private:
  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec&, TargetId target) {
  return std::make_unique<const Bf16>(kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::bf16
