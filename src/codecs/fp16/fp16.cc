// fp16: float16 values, with error feedback for what is too large or too small for them. spec.md in this
// folder defines the bytes.
#include "codecs/fp16/fp16_ops.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"

namespace deltawire::fp16 {

namespace {

constexpr std::uint64_t kChunkElements = 65536;

constexpr CodecInfo kInfo = {
    .id = 17,
    .name = "fp16",
    .summary = "IEEE half floats, saturated at 65,504, with error feedback: half the bytes",
    .source = "IEEE 754-2019, section 3.6 (binary16)",
    .default_pattern = "direct",
    .error_feedback = true,
    .finite_only = true,
    .chunk_elements = kChunkElements,
};

class Fp16 final : public Codec {
 public:
  explicit Fp16(const Kernels& kernels) noexcept : Codec(kInfo), kernels_(kernels) {}

  std::string spec() const override { return "fp16"; }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(part.count, kChunkElements, kValueBytes);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec&) const override {
    if (!kernels_.all_finite(part.in, part.residual, part.count)) return not_finite();
    kernels_.encode(part.in, part.residual, part.left, part.count, out.payload.data());
    return write_fixed_ends(part.count, kChunkElements, kValueBytes, out.chunk_ends);
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_part(in, out.count); !ok) return ok;
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    kernel(in.payload.data(), out.count, out.scale, out.slot);
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_part(in, count); !ok) return ok;
    add_section(sections, "float16 values", in.payload.size() * 8);
    return {};
  }

  Status check_part(const PartView& in, std::uint64_t count) const {
    if (auto ok = check_fixed_ends(in, count, kChunkElements, kValueBytes); !ok) return ok;
    const std::uint64_t bad = kernels_.find_not_finite(in.payload.data(), count);
    if (bad == count) return {};
    return fail(ErrorCode::kCorrupt, "fp16: element " + std::to_string(bad) + " is not finite");
  }

  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec&, TargetId target) {
  return std::make_unique<const Fp16>(kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::fp16
