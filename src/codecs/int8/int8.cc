// int8: 255 evenly spaced values, one byte for each element. spec.md in this folder defines the bytes.

#include <bit>

#include "base/errors.h"
#include "base/float_environment.h"
#include "codecs/fixed_codec.h"
#include "codecs/int8/int8_ops.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::int8 {

namespace {

constexpr CodecInfo kInfo = {
    .id = 7,
    .name = "int8",
    .summary = "255 evenly spaced values up to the largest: a quarter of the bytes",
    .source = "Lim, Andersen, Kaminsky: 3LC (MLSys 2019), section 5 (8-bit int)",
    .default_pattern = "direct",
    .error_feedback = true,
    .finite_only = true,
    .scalars = 1,
    .chunk_elements = kFixedChunkElements,
};

class Int8 final : public FixedCodec {
 public:
  explicit Int8(TargetId target) noexcept
      : FixedCodec(kInfo, Field{"int8 codes", 8}),
        kernels_(kernels_for(target)),
        addends_(addends::kernels_for(target)) {}

 private:
  Result<Scalars> encode_codes(const PartSource& part, const Exec&, std::byte* payload) const override {
    const auto [first, second] = two_passes(part);
    const std::uint32_t largest = addends_.add_up(first);
    if (largest >= kInfinityBits) return not_finite();
    const float step = step_for(FloatEnvironment::pinned(std::bit_cast<float>(largest)));
    kernels_.encode(second, step, payload);
    return Scalars{std::bit_cast<std::uint32_t>(step)};
  }

  Status check_codes(const PartView& in, std::uint64_t count) const override {
    RETURN_IF_ERROR(check_step(in));
    const std::uint64_t bad = kernels_.find_bad_code(in.payload.data(), count, in.scalar == 0);
    if (bad == count) return {};
    return corrupt("int8: the code of element " + std::to_string(bad) +
                   (in.payload[bad] == kUnusedCode ? " is -128" : " isn't 0 although the step is 0"));
  }

  // With a step, codes are checked in the pass that decodes them.
  Status decode_codes(const PartView& in, const PartTarget& out) const override {
    RETURN_IF_ERROR(in.scalar == 0 ? check_codes(in, out.count) : check_step(in));
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    const auto step = std::bit_cast<float>(in.scalar);
    if (kernel(in.payload.data(), out.count, step, out.scale, out.slot)) return {};
    return check_codes(in, out.count);
  }

  static Status check_step(const PartView& in) {
    if (in.scalar <= kLargestStep) return {};
    return corrupt("int8: the step is " + number_text(std::bit_cast<float>(in.scalar)) +
                   ", not a number >= 0 with a finite 127-fold");
  }

  const Kernels& kernels_;
  const addends::Kernels& addends_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec&, TargetId target) {
  return std::make_unique<const Int8>(target);
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2, avx512, neon)

extern constinit const Registration kRegistration = {&kInfo, make, own_kernels<kernels_for>};

}  // namespace deltawire::int8
