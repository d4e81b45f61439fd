// int8: 255 evenly spaced values, one byte for each element. spec.md in this folder defines the bytes.

#include <bit>

#include "base/float_environment.h"
#include "codecs/int8/int8_ops.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::int8 {

namespace {

constexpr std::uint64_t kChunkElements = 65536;

constexpr CodecInfo kInfo = {
    .id = 7,
    .name = "int8",
    .summary = "255 evenly spaced values up to the largest: a quarter of the bytes",
    .source = "Lim, Andersen, Kaminsky: 3LC (MLSys 2019), section 5 (8-bit int)",
    .default_pattern = "direct",
    .error_feedback = true,
    .finite_only = true,
    .scalars = 1,
    .chunk_elements = kChunkElements,
};

class Int8 final : public Codec {
 public:
  explicit Int8(const Kernels& kernels) noexcept : Codec(kInfo), kernels_(kernels) {}

  std::string spec() const override { return "int8"; }

  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(part.count, kChunkElements, kValueBytes);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec&) const override {
    const auto [first, second] = two_passes(part);
    const std::uint32_t largest = kernels_.sum_up(first);
    if (largest >= kInfinityBits) return not_finite();
    const float step = step_for(FloatEnvironment::pinned(std::bit_cast<float>(largest)));
    kernels_.encode(second, step, out.payload.data());
    EncodedPart encoded = write_fixed_ends(part.count, kChunkElements, kValueBytes, out.chunk_ends);
    encoded.scalar = std::bit_cast<std::uint32_t>(step);
    return encoded;
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_step(in, out.count); !ok) return ok;
    if (in.scalar == 0) {
      if (auto ok = check_codes(in); !ok) return ok;
    }
    // With a step, codes are checked in the pass that decodes them.
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    const auto step = std::bit_cast<float>(in.scalar);
    if (kernel(in.payload.data(), out.count, step, out.scale, out.slot)) return {};
    return check_codes(in);
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_step(in, count); !ok) return ok;
    if (auto ok = check_codes(in); !ok) return ok;
    add_section(sections, "int8 codes", in.payload.size() * 8);
    return {};
  }

 private:
  // All but the codes.
  static Status check_step(const PartView& in, std::uint64_t count) {
    if (auto ok = check_fixed_ends(in, count, kChunkElements, kValueBytes); !ok) return ok;
    if (in.scalar <= kLargestStep) return {};
    return fail(ErrorCode::kCorrupt, "int8: the step is " + number_text(std::bit_cast<float>(in.scalar)) +
                                         ", not a number >= 0 with a finite 127-fold");
  }

  Status check_codes(const PartView& in) const {
    const std::uint64_t count = in.payload.size();
    const std::uint64_t bad = kernels_.find_bad_code(in.payload.data(), count, in.scalar == 0);
    if (bad == count) return {};
    return fail(ErrorCode::kCorrupt,
                "int8: the code of element " + std::to_string(bad) +
                    (in.payload[bad] == kUnusedCode ? " is -128" : " isn't 0 although the step is 0"));
  }

  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec&, TargetId target) {
  return std::make_unique<const Int8>(kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2, avx512, neon)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::int8
