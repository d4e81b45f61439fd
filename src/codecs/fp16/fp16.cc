// fp16: float16 values, with error feedback for what is too large or too small for them. spec.md in this
// folder defines the bytes.
#include "codecs/fixed_codec.h"
#include "codecs/fp16/fp16_ops.h"
#include "codecs/registration.h"

namespace deltawire::fp16 {

namespace {

constexpr CodecInfo kInfo = {
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
  explicit Fp16(const Kernels& kernels) noexcept
      : ElementwiseCodec(kInfo, kernels, Field{"float16 values", 16}) {}

 private:
  Status check_codes(const PartView& in, std::uint64_t count) const override {
    const std::uint64_t bad = kernels().find_refused(in.payload.data(), count);
    if (bad == count) return {};
    return fail(ErrorCode::kCorrupt, "fp16: element " + std::to_string(bad) + " is not finite");
  }
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec&, TargetId target) {
  return std::make_unique<const Fp16>(kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2)

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<kernels_for>};

}  // namespace deltawire::fp16
