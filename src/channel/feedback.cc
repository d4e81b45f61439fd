#include "channel/feedback.h"

#include "codecs/spec_string.h"

namespace deltawire {
namespace {

constexpr ParameterInfo kPieces[] = {
    kClipPiece,
    kMomentumPiece,
    {"masking", "on or off", "off", "momentum of what was sent becomes 0"},
    kDecayPiece,
};

}  // namespace

std::string Feedback::text() const {
  std::string pieces;
  const auto add = [&](std::string_view name, const std::string& value) {
    pieces += (pieces.empty() ? " with " : ",") + std::string(name) + "=" + value;
  };
  if (clip != 0) add("clip", canonical_number(clip));
  if (momentum != 0) add("momentum", canonical_number(momentum));
  if (masking) add("masking", "on");
  if (decay != 1) add("decay", canonical_number(decay));
  return pieces;
}

Result<Feedback> read_feedback(const ParsedSpec& spec, const Feedback& defaults) {
  constexpr std::string_view kSwitch[] = {"off", "on"};
  const auto clip =
      float_parameter(spec, "clip", {.low = 1e-6F, .high = 1e6F, .default_value = defaults.clip});
  if (!clip) return forward_error(clip);
  const auto momentum =
      float_parameter(spec, "momentum", {.low = 0, .high = 1, .default_value = defaults.momentum});
  if (!momentum) return forward_error(momentum);
  const auto masking = choice_parameter(spec, "masking", kSwitch, defaults.masking ? 1 : 0);
  if (!masking) return forward_error(masking);
  const auto decay = float_parameter(spec, "decay", {.low = 0, .high = 1, .default_value = defaults.decay});
  if (!decay) return forward_error(decay);
  return Feedback{*clip, *momentum, *masking == 1, *decay};
}

Result<Feedback> parse_feedback(std::string_view pieces) {
  const std::string text = "feedback:" + std::string(pieces);
  const auto spec = parse_spec(text);
  if (!spec) return forward_error(spec);
  if (Status known = check_parameter_names(*spec, kPieces); !known) return forward_error(known);
  auto feedback = read_feedback(*spec, {});
  if (feedback && feedback->masking && feedback->momentum == 0) {
    return fail(ErrorCode::kInvalidArgument,
                "feedback: masking=on is for a momentum; give that, too, e.g. momentum=0.9,masking=on");
  }
  return feedback;
}

}  // namespace deltawire
