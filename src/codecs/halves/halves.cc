// bf16 and fp16: the two formats of 16 bits, each value rounded to nearest even. spec.md in their folders
// define the bytes.
#include "base/errors.h"
#include "codecs/fixed_codec.h"
#include "codecs/halves/halves_ops.h"
#include "codecs/registration.h"

namespace deltawire::halves {

namespace {

constexpr CodecInfo kBf16Info = {
    .id = 2,
    .name = "bf16",
    .summary = "upper half of each float32, rounded to nearest even: half the bytes",
    .source = "Intel, BFLOAT16 - Hardware Numerics Definition (2018), sections 1-2",
    .default_pattern = "direct",
    .chunk_elements = kFixedChunkElements,
    .at_copy_speed = true,
    .separate_chunks = true,
};

constexpr CodecInfo kFp16Info = {
    .id = 17,
    .name = "fp16",
    .summary = "IEEE half floats, saturated at 65,504, with error feedback: half the bytes",
    .source = "IEEE 754-2019, section 3.6 (binary16)",
    .default_pattern = "direct",
    .error_feedback = true,
    .finite_only = true,
    .chunk_elements = kFixedChunkElements,
};

class Fp16 final : public ElementwiseCodec<> {
 public:
  explicit Fp16(TargetId target) noexcept
      : ElementwiseCodec(kFp16Info, kernels_for(target).fp16, target, Field{"float16 values", 16}) {}

 private:
  Status check_codes(const PartView& in, std::uint64_t count) const override {
    const std::uint64_t bad = kernels().find_refused(in.payload.data(), count);
    if (bad == count) return {};
    return corrupt("fp16: element " + std::to_string(bad) + " is not finite");
  }
};

Result<std::unique_ptr<const Codec>> make_bf16(const ParsedSpec&, TargetId target) {
  return std::make_unique<const ElementwiseCodec<>>(kBf16Info, kernels_for(target).bf16, target,
                                                    Field{"bf16 values", 16});
}

Result<std::unique_ptr<const Codec>> make_fp16(const ParsedSpec&, TargetId target) {
  return std::make_unique<const Fp16>(target);
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2)

}  // namespace deltawire::halves

namespace deltawire::bf16 {

extern constinit const Registration kRegistration = {&halves::kBf16Info, halves::make_bf16,
                                                     own_kernels<halves::kernels_for>};

}  // namespace deltawire::bf16

namespace deltawire::fp16 {

extern constinit const Registration kRegistration = {&halves::kFp16Info, halves::make_fp16,
                                                     own_kernels<halves::kernels_for>};

}  // namespace deltawire::fp16
