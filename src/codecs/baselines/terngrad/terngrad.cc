// terngrad: three values, drawn by chance without bias, five to a byte. spec.md in this folder defines the
// bytes.
#include <bit>
#include <cmath>

#include "base/checked.h"
#include "base/float_environment.h"
#include "codecs/baselines/terngrad/terngrad_ops.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::terngrad {

namespace {

constexpr std::uint64_t kChunkBytes = kChunkElements / base3::kDigitsPerByte;
constexpr std::string_view kOff = "off";

constexpr ParameterInfo kParameters[] = {
    {"clip", "1 <= clip < 100, or off", "2.5",
     "values are clipped at so many root mean squares of the tensor; off: unbiased"},
};

constexpr std::string_view kExamples[] = {"terngrad:clip=off"};

constexpr CodecInfo kInfo = {
    .id = 10,
    .name = "terngrad",
    .summary = "three values, drawn by chance, five to a byte: 20x smaller",
    .source = "Wen, Xu, Yan, Wu, Wang, Chen, Li: TernGrad (NeurIPS 2017), section 3",
    .parameters = kParameters,
    .examples = kExamples,
    .default_pattern = "gather",
    .finite_only = true,
    .scalars = 1,
    .chunk_elements = kChunkElements,
};

std::uint64_t bytes_of(std::uint64_t count) noexcept {
  return ceil_div(count, base3::kDigitsPerByte);
}

std::string_view text_of(Fault fault) noexcept {
  switch (fault) {
    case Fault::kBadByte: return "a byte is above 242";
    case Fault::kBadPad: return "a pad digit isn't 1";
    default: return "a digit isn't 0 although m is 0";
  }
}

class Terngrad final : public Codec {
 public:
  // `clip`: 0 for off.
  Terngrad(float clip, const Kernels& kernels) noexcept : Codec(kInfo), clip_(clip), kernels_(kernels) {}

  std::string spec() const override {
    return "terngrad:clip=" + (clip_ == 0 ? std::string(kOff) : canonical_number(clip_));
  }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(bytes_of(part.count), kChunkBytes, 1);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out,
                                const Exec& exec) const override {
    const auto [first, second] = two_passes(part);
    const Spread spread = kernels_.sum_up(first);
    if (spread.largest >= kInfinityBits) return not_finite();
    const float m = scale_of(spread, part.count);
    const CounterRng random(exec.stream);
    for (std::uint64_t at = 0; at < part.count; at += kChunkElements) {
      const std::uint64_t count = std::min(part.count - at, kChunkElements);
      kernels_.encode(some_of(second, at, count), {random, at}, m, out.payload.data() + bytes_of(at));
    }
    EncodedPart encoded = write_fixed_ends(bytes_of(part.count), kChunkBytes, 1, out.chunk_ends);
    encoded.scalar = std::bit_cast<std::uint32_t>(m);
    return encoded;
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_frame(in, out.count); !ok) return ok;
    const float value = FloatEnvironment::pinned(std::bit_cast<float>(in.scalar)) * out.scale;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const base3::RowTarget target{out.slot + i * kChunkElements,
                                    elements_of_chunk(out.count, i, kChunkElements), value, in.scalar == 0,
                                    out.accumulate};
      const Fault fault = kernels_.decode(chunk_of(in, i).at, target);
      if (auto ok = fault_status("terngrad", i, fault, text_of(fault)); !ok) return ok;
    }
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_frame(in, count); !ok) return ok;
    for (std::size_t i = 0; i < in.chunk_ends.size(); ++i) {
      const std::uint32_t elements = elements_of_chunk(count, i, kChunkElements);
      const Fault fault = kernels_.check(chunk_of(in, i).at, elements, in.scalar == 0);
      if (auto ok = fault_status("terngrad", i, fault, text_of(fault)); !ok) return ok;
    }
    add_section(sections, "base 3^5", in.payload.size() * 8);
    return {};
  }

  // All but the digits.
  static Status check_frame(const PartView& in, std::uint64_t count) {
    if (auto ok = check_fixed_ends(in, bytes_of(count), kChunkBytes, 1); !ok) return ok;
    if (in.scalar < kInfinityBits) return {};
    return fail(ErrorCode::kCorrupt, "terngrad: m is " + number_text(std::bit_cast<float>(in.scalar)) +
                                         ", not a finite number >= 0");
  }

  // m: the largest magnitude, or where values are clipped.
  float scale_of(const Spread& spread, std::uint64_t count) const noexcept {
    const auto largest = std::bit_cast<float>(spread.largest);
    if (clip_ == 0) return largest;
    const double limit = static_cast<double>(clip_) * std::sqrt(spread.squares / static_cast<double>(count));
    return limit < static_cast<double>(largest) ? static_cast<float>(limit) : largest;
  }

  float clip_;
  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  const SpecParameter* given = find_parameter(spec, "clip");
  if (given != nullptr && given->value == kOff) {
    return std::make_unique<const Terngrad>(0.0F, kernels_for(target));
  }
  const auto clip = float_parameter(spec, "clip", {.low = 1, .high = 100, .default_value = 2.5F});
  if (!clip) return forward_error(clip);
  return std::make_unique<const Terngrad>(*clip, kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::terngrad
