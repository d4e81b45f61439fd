// signsgd: the sign of each value and one scale, the mean magnitude or 1, with error feedback or without.
// spec.md in this folder defines the bytes.
#include <bit>
#include <cstring>
#include <limits>

#include "base/checked.h"
#include "base/float_environment.h"
#include "codecs/part_checks.h"
#include "codecs/registration.h"
#include "codecs/signsgd/signsgd_ops.h"
#include "codecs/two_passes.h"

namespace deltawire::signsgd {

namespace {

constexpr std::uint64_t kChunkElements = 65536;
constexpr std::uint64_t kChunkBytes = kChunkElements / 8;

constexpr ParameterInfo kParameters[] = {
    {"feedback", "on or off", "on", "whether what a step loses joins the next (EF-signSGD)"},
    {"scale", "mean or one", "mean", "one, with feedback=off: the bare sign, as votes are"},
};

constexpr std::string_view kExamples[] = {"signsgd:feedback=off", "signsgd:feedback=off,scale=one"};

constexpr std::uint32_t kOneBits = 0x3F800000;

constexpr CodecInfo info_with(bool feedback) noexcept {
  return {
      .id = 13,
      .name = "signsgd",
      .summary = "signs and one scale, the mean magnitude, with error feedback: 32x smaller",
      .source =
          "Karimireddy, Rebjock, Stich, Jaggi: Error Feedback Fixes SignSGD (ICML 2019), algorithm 1; "
          "feedback=off: Bernstein, Wang, Azizzadenesheli, Anandkumar: signSGD (ICML 2018), scaled",
      .parameters = kParameters,
      .examples = kExamples,
      .default_pattern = "direct",
      .error_feedback = feedback,
      .finite_only = true,
      .scalars = 1,
      .chunk_elements = kChunkElements,
  };
}

constexpr CodecInfo kInfo = info_with(true);
constexpr CodecInfo kInfoWithoutFeedback = info_with(false);

std::uint64_t bytes_of(std::uint64_t count) noexcept {
  return ceil_div(count, 8);
}

class Signsgd final : public Codec {
 public:
  Signsgd(bool feedback, bool is_bare, const Kernels& kernels) noexcept
      : Codec(feedback ? kInfo : kInfoWithoutFeedback), is_bare_(is_bare), kernels_(kernels) {}

  std::string spec() const override {
    return std::string("signsgd:feedback=") + (info().error_feedback ? "on" : "off") +
           ",scale=" + (is_bare_ ? "one" : "mean");
  }

  // The bare sign has magnitude 1, whatever the value's.
  double gain() const noexcept override { return is_bare_ ? std::numeric_limits<double>::infinity() : 1; }

 private:
  Sizes do_sizes(const TensorView& part) const noexcept override {
    return fixed_sizes(bytes_of(part.count), kChunkBytes, 1);
  }

  Result<EncodedPart> do_encode(const PartSource& part, const PartBuffer& out, const Exec&) const override {
    const auto [first, second] = two_passes(part);
    const Magnitudes magnitudes = kernels_.split(first, out.payload.data());
    if (magnitudes.largest >= kInfinityBits) return not_finite();
    const float scale =
        is_bare_ ? 1.0F : static_cast<float>(magnitudes.sum / static_cast<double>(part.count));
    // A mean so small that it is rounded to 0 sends nothing, not even signs.
    if (scale == 0) std::memset(out.payload.data(), 0, bytes_of(part.count));
    if (second.left != nullptr) kernels_.take_scale(second, scale);
    EncodedPart encoded = write_fixed_ends(bytes_of(part.count), kChunkBytes, 1, out.chunk_ends);
    encoded.scalar = std::bit_cast<std::uint32_t>(scale);
    return encoded;
  }

  Status do_decode(const PartView& in, const PartTarget& out, const Exec&) const override {
    if (auto ok = check_part(in, out.count); !ok) return ok;
    const float value = FloatEnvironment::pinned(std::bit_cast<float>(in.scalar)) * out.scale;
    const auto kernel = out.accumulate ? kernels_.decode_accumulate : kernels_.decode_overwrite;
    kernel(in.payload.data(), out.count, value, out.slot);
    return {};
  }

  Status do_describe(const PartView& in, std::uint64_t count, std::vector<Section>& sections) const override {
    if (auto ok = check_part(in, count); !ok) return ok;
    add_section(sections, "signs", count);
    add_section(sections, "padding", in.payload.size() * 8 - count);
    return {};
  }

  Status check_part(const PartView& in, std::uint64_t count) const {
    if (auto ok = check_fixed_ends(in, bytes_of(count), kChunkBytes, 1); !ok) return ok;
    if (in.scalar >= kInfinityBits) {
      return fail(ErrorCode::kCorrupt, "signsgd: the scale is " +
                                           number_text(std::bit_cast<float>(in.scalar)) +
                                           ", not a finite number >= 0");
    }
    if (is_bare_ && count > 0 && in.scalar != kOneBits) {
      return fail(ErrorCode::kCorrupt, "signsgd: the scale of a bare sign is not 1");
    }
    const std::uint64_t bytes = in.payload.size();
    if (in.scalar == 0 && kernels_.find_set(in.payload.data(), bytes) < bytes) {
      return fail(ErrorCode::kCorrupt, "signsgd: a value is negative although the scale is 0");
    }
    if (count % 8 == 0 || std::to_integer<unsigned>(in.payload.back()) >> count % 8 == 0) return {};
    return fail(ErrorCode::kCorrupt, "signsgd: bits follow the last element");
  }

  bool is_bare_;
  const Kernels& kernels_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId target) {
  constexpr std::string_view kSwitch[] = {"off", "on"};
  const auto feedback = choice_parameter(spec, "feedback", kSwitch, 1);
  if (!feedback) return forward_error(feedback);
  constexpr std::string_view kScale[] = {"mean", "one"};
  const auto scale = choice_parameter(spec, "scale", kScale, 0);
  if (!scale) return forward_error(scale);
  if (*scale == 1 && *feedback == 1) {
    return fail(ErrorCode::kInvalidArgument,
                "signsgd: a residual grows for ever under bare signs; give scale=one with feedback=off");
  }
  return std::make_unique<const Signsgd>(*feedback == 1, *scale == 1, kernels_for(target));
}

}  // namespace

DELTAWIRE_KERNELS(reference)

Registration registration() noexcept {
  return {&kInfo, make, own_kernels<kernels_for>};
}

}  // namespace deltawire::signsgd
