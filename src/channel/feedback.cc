#include "channel/feedback.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <utility>

#include "base/errors.h"
#include "base/float16.h"
#include "base/float_environment.h"
#include "codecs/spec_string.h"

namespace deltawire {
namespace {

constexpr ParameterInfo kPieces[] = {
    kClipPiece,  kMomentumPiece,  {"masking", "on or off", "off", "momentum of what was sent becomes 0"},
    kDecayPiece, kPullDecayPiece,
};

// In lanes, added up in their order: the same on every machine, and no chain of additions.
double squared_norm(std::span<const float> values) noexcept {
  constexpr std::size_t kLanes = 8;
  double lanes[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (; i < values.size(); ++i) {
    lanes[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// A part that was cut from a tensor gets the fraction of the limit that its elements have of the norm's
// square.
void clip_norm(std::span<float> values, const Velocity::Step& step) noexcept {
  assert(values.size() <= step.elements_of_whole && step.feedback.clip > 0);
  const double fraction = static_cast<double>(values.size()) / static_cast<double>(step.elements_of_whole);
  const double limit = static_cast<double>(step.feedback.clip) * std::sqrt(fraction) *
                       static_cast<double>(FloatEnvironment::pinned(step.scale));
  const double norm = std::sqrt(squared_norm(values));
  if (!(norm > limit) || !std::isfinite(norm)) return;  // what is not finite is the codec's to refuse
  const double factor = limit / norm;
  for (float& value : values) value = static_cast<float>(static_cast<double>(value) * factor);
}

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
  if (pull_decay != 1) add("pull_decay", canonical_number(pull_decay));
  return pieces;
}

Result<Feedback> read_feedback(const ParsedSpec& spec, const Feedback& defaults) {
  constexpr std::string_view kSwitch[] = {"off", "on"};
  ASSIGN_OR_RETURN(
      const auto clip,
      float_parameter(spec, "clip", {.low = 1e-6F, .high = 1e6F, .default_value = defaults.clip}));
  ASSIGN_OR_RETURN(
      const auto momentum,
      float_parameter(spec, "momentum", {.low = 0, .high = 1, .default_value = defaults.momentum}));
  ASSIGN_OR_RETURN(const auto masking, choice_parameter(spec, "masking", kSwitch, defaults.masking ? 1 : 0));
  ASSIGN_OR_RETURN(const auto decay,
                   float_parameter(spec, "decay", {.low = 0, .high = 1, .default_value = defaults.decay}));
  ASSIGN_OR_RETURN(
      const auto pull_decay,
      float_parameter(spec, "pull_decay", {.low = 0, .high = 1, .default_value = defaults.pull_decay}));
  return Feedback{clip, momentum, masking == 1, decay, pull_decay};
}

Result<Feedback> parse_feedback(std::string_view pieces) {
  const std::string text = "feedback:" + std::string(pieces);
  ASSIGN_OR_RETURN(const auto spec, parse_spec(text));
  RETURN_IF_ERROR(check_parameter_names(spec, kPieces));
  auto feedback = read_feedback(spec, {});
  if (feedback && feedback->masking && feedback->momentum == 0) {
    return invalid("feedback: masking=on is for a momentum; give that, too, e.g. momentum=0.9,masking=on");
  }
  return feedback;
}

void Velocity::prepare(std::uint64_t count) {
  before_.resize(count, 0.0F);
  after_.resize(count);
}

void Velocity::advance(const TensorSlot& gradient, const Step& step) noexcept {
  assert(gradient.count == after_.size() && after_.size() == before_.size());
  assert(dtype_bytes(gradient.dtype) != 0);
  const FloatEnvironment environment;
  if (gradient.dtype == DType::kF32) {
    std::copy_n(static_cast<const float*>(gradient.values), gradient.count, after_.begin());
  } else {
    widen(gradient.values, gradient.dtype, gradient.count, after_.data());
  }
  const auto drop_nonfinite = [&] {
    if (!step.drops_nonfinite) return;
    std::ranges::replace_if(after_, [](float value) { return !std::isfinite(value); }, 0.0F);
  };
  drop_nonfinite();
  if (step.feedback.clip != 0) clip_norm(after_, step);
  if (const float momentum = FloatEnvironment::pinned(step.feedback.momentum); momentum != 0) {
    const double ratio = static_cast<double>(step.scale) / static_cast<double>(scale_);
    for (std::size_t i = 0; i < after_.size(); ++i) {
      const auto u = static_cast<float>(static_cast<double>(before_[i]) * ratio);
      after_[i] = momentum * u + after_[i];
    }
  }
  drop_nonfinite();
  next_scale_ = step.scale;
  has_advanced_ = true;
  is_kept_ = step.feedback.momentum != 0;
}

void Velocity::settle() noexcept {
  if (has_advanced_ && is_kept_) {
    before_.swap(after_);
    scale_ = next_scale_;
  }
  has_advanced_ = false;
}

void Velocity::load(std::vector<float> values, float scale) {
  assert(scale > 0 || values.empty());
  before_ = std::move(values);
  after_.resize(before_.size());
  scale_ = scale;
  has_advanced_ = false;
}

}  // namespace deltawire
