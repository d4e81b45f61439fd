// onebit: the sign of each value, and the mean of each side, with error feedback; here with means of a part.
// spec.md in this folder defines the bytes.
#include <bit>

#include "base/float_environment.h"
#include "codecs/fixed_codec.h"
#include "codecs/onebit/onebit_means.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::onebit {

namespace {

constexpr CodecInfo kInfo = info_with(false);

class Onebit final : public FixedCodec {
 public:
  explicit Onebit(const Kernels& kernels) noexcept
      : FixedCodec(kInfo, Field{"signs", 1}), kernels_(kernels) {}

 private:
  Result<Scalars> encode_codes(const PartSource& part, const Exec&, std::byte* payload) const override {
    const auto [first, second] = two_passes(part);
    const Sides sides = kernels_.split(first, payload);
    if (sides.largest >= kInfinityBits) return not_finite();
    const Means means = means_of(sides, part.count);
    if (second.left != nullptr) kernels_.take_means(second, means);
    return Scalars{std::bit_cast<std::uint32_t>(means.high), std::bit_cast<std::uint32_t>(means.low)};
  }

  Status check_codes(const PartView& in, std::uint64_t count) const override {
    if (auto ok = check_means(in.scalar, in.scalar2); !ok) return ok;
    const std::uint64_t bytes = in.payload.size();
    if (in.scalar2 == 0 && kernels_.find_set(in.payload.data(), bytes) < bytes) {
      return fail(ErrorCode::kCorrupt, "onebit: a value is negative although the part has no mean for it");
    }
    return check_padding(in, count);
  }

  Status decode_codes(const PartView& in, const PartTarget& out) const override {
    if (auto ok = check_codes(in, out.count); !ok) return ok;
    const Means values{FloatEnvironment::pinned(std::bit_cast<float>(in.scalar)) * out.scale,
                       FloatEnvironment::pinned(std::bit_cast<float>(in.scalar2)) * out.scale};
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    kernel(in.payload.data(), out.count, values, out.slot);
    return {};
  }

  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  constexpr std::string_view kChoices[] = {"part", "column"};
  const auto means = choice_parameter(spec, "means", kChoices, 0);
  if (!means) return forward_error(means);
  if (*means == 1) return make_with_columns(kernels_for(target));
  return std::make_unique<const Onebit>(kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference, avx2)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::onebit
