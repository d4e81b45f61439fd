// signsgd: the sign of each value and one scale, the mean magnitude or 1, with error feedback or without.
// spec.md in this folder defines the bytes.
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/errors.h"
#include "base/float_environment.h"
#include "codecs/fixed_codec.h"
#include "codecs/kernels/element_bits.h"
#include "codecs/kernels/lanes.h"
#include "codecs/registration.h"
#include "codecs/two_passes.h"

namespace deltawire::signsgd {

namespace {

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
      .late = feedback,
      .finite_only = true,
      .scalars = 1,
      .chunk_elements = kFixedChunkElements,
  };
}

constexpr CodecInfo kInfo = info_with(true);
constexpr CodecInfo kInfoWithoutFeedback = info_with(false);

class Signsgd final : public FixedCodec {
 public:
  Signsgd(bool feedback, bool is_bare) noexcept
      : FixedCodec(feedback ? kInfo : kInfoWithoutFeedback, Field{"signs", 1}), is_bare_(is_bare) {}

  std::string spec() const override {
    return std::string("signsgd:feedback=") + (info().error_feedback ? "on" : "off") +
           ",scale=" + (is_bare_ ? "one" : "mean");
  }

  // The bare sign has magnitude 1, whatever the value's.
  double gain() const noexcept override { return is_bare_ ? std::numeric_limits<double>::infinity() : 1; }

 private:
  Result<Scalars> encode_codes(const PartSource& part, const Exec&, std::byte* payload) const override {
    const auto [first, second] = two_passes(part);
    const Spread magnitudes = spread_by(first, [payload](std::uint64_t i, float x) {
      put_sign_bit(payload, i, x < 0);
      return std::fabs(x);
    });
    if (magnitudes.largest >= kInfinityBits) return not_finite();
    const float scale =
        is_bare_ ? 1.0F : static_cast<float>(magnitudes.sum / static_cast<double>(part.count));
    // A mean so small that it is rounded to 0 sends nothing, not even signs.
    if (scale == 0) std::memset(payload, 0, bytes_of(part.count));
    for (std::uint64_t i = 0; i < second.count && second.left != nullptr; ++i) {
      const float x = sum_at(second, i);
      second.left[i] = x - (x < 0 ? -scale : scale);
    }
    return Scalars{std::bit_cast<std::uint32_t>(scale)};
  }

  Status check_codes(const PartView& in, std::uint64_t count) const override {
    RETURN_IF_ERROR(check_scalar("signsgd", "the scale", in.scalar));
    if (is_bare_ && count > 0 && in.scalar != kOneBits) {
      return corrupt("signsgd: the scale of a bare sign is not 1");
    }
    const std::uint64_t bytes = in.payload.size();
    if (in.scalar == 0 && find_set_byte(in.payload.data(), bytes) < bytes) {
      return corrupt("signsgd: a value is negative although the scale is 0");
    }
    return check_padding(in, count);
  }

  Status decode_codes(const PartView& in, const PartTarget& out) const override {
    RETURN_IF_ERROR(check_codes(in, out.count));
    const float value = FloatEnvironment::pinned(std::bit_cast<float>(in.scalar)) * out.scale;
    if (out.accumulate) {
      add_sides(in.payload.data(), out.count, {value, -value}, out.slot);
    } else {
      put_sides(in.payload.data(), out.count, {value, -value}, out.slot);
    }
    return {};
  }

  bool is_bare_;
};

Result<std::unique_ptr<const Codec>> make(const ParsedSpec& spec, TargetId) {
  constexpr std::string_view kSwitch[] = {"off", "on"};
  ASSIGN_OR_RETURN(const auto feedback, choice_parameter(spec, "feedback", kSwitch, 1));
  constexpr std::string_view kScale[] = {"mean", "one"};
  ASSIGN_OR_RETURN(const auto scale, choice_parameter(spec, "scale", kScale, 0));
  if (scale == 1 && feedback == 1) {
    return invalid(
        "signsgd: a residual grows without bound under bare signs; give scale=one with feedback=off");
  }
  return std::make_unique<const Signsgd>(feedback == 1, scale == 1);
}

}  // namespace

extern constinit const Registration kRegistration = {&kInfo, make};

}  // namespace deltawire::signsgd
