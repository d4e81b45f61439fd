// GComp's quantization metric, table 2. Every optimizer's numerator has one form,
//   parameter * (plain + root * sqrt(second)) + momentum * first,
// so the kinds differ in three coefficients and one loop serves all.
#include <cmath>
#include <limits>

#include "base/errors.h"
#include "base/float_environment.h"
#include "deltawire/optimizer.h"
#include "optim/step_rules.h"

namespace deltawire {

namespace {

struct Coefficients {
  double plain = 0;
  double root = 0;
  double momentum = 0;
};

Coefficients adam_coefficients(const OptimizerSettings& s, std::uint64_t steps) {
  double unit = bias_correction(s.beta1, steps + 1) / (s.learning_rate * (1 - s.beta1));
  double decay = s.weight_decay;
  if (s.kind == OptimizerKind::kAdamW) {
    unit *= 1 - s.learning_rate * s.weight_decay;
    decay = 0;
  }
  // At steps = 0 there is no moment yet: the root is infinite, so that no value is defined.
  return {s.eps * unit - decay, unit / std::sqrt(bias_correction(s.beta2, steps)), -s.beta1 / (1 - s.beta1)};
}

Coefficients coefficients_of(const OptimizerSettings& s, std::uint64_t steps, bool has_first) {
  const double eta = s.learning_rate;
  const double lambda = s.weight_decay;
  const double mu = s.momentum;
  switch (s.kind) {
    case OptimizerKind::kSgd: break;
    case OptimizerKind::kMomentum:
      if (!has_first) break;
      return {1 / (eta * (1 - s.dampening)) - lambda, 0, -mu / (1 - s.dampening)};
    case OptimizerKind::kNesterov:
      return {(1 - eta * lambda * (1 + mu)) / (eta * (1 + mu)), 0, -mu * mu / (1 + mu)};
    case OptimizerKind::kAdaGrad: {
      const double decayed = eta / (1 + static_cast<double>(steps) * s.lr_decay);
      return {s.eps / decayed - lambda, 1 / decayed, 0};
    }
    case OptimizerKind::kRmsProp: return {s.eps / eta - lambda, 1 / eta, 0};
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW: return adam_coefficients(s, steps);
  }
  return {1 / eta - lambda, 0, 0};
}

SignificanceCoefficients rounded(const OptimizerSettings& s, std::uint64_t steps, bool has_first,
                                 bool has_second) {
  const Coefficients exact = coefficients_of(s, steps, has_first);
  SignificanceCoefficients c{static_cast<float>(exact.plain), static_cast<float>(exact.root),
                             static_cast<float>(exact.momentum), false};
  c.is_defined = std::isfinite(c.plain) && std::isfinite(c.root) && std::isfinite(c.momentum) &&
                 (has_second || !has_second_moment(s.kind));
  return c;
}

// 0 for NaN and infinities, and otherwise the value.
float finite_or_zero(float value) noexcept {
  return std::abs(value) <= std::numeric_limits<float>::max() ? value : 0.0F;
}

void write_without_second(const SignificanceCoefficients& c, std::span<const float> parameters,
                          std::span<const float> first, float* out) {
  const float plain = FloatEnvironment::pinned(c.plain);
  const float momentum = c.momentum;
  const float* theta = parameters.data();
  if (first.empty()) {
    for (std::size_t i = 0; i < parameters.size(); ++i) out[i] = finite_or_zero(theta[i] * plain);
    return;
  }
  const float* b = first.data();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    out[i] = finite_or_zero(theta[i] * plain + b[i] * momentum);
  }
}

void write_with_second(const SignificanceCoefficients& c, std::span<const float> parameters,
                       const MomentsView& moments, float* out) {
  const float plain = FloatEnvironment::pinned(c.plain);
  const float root = c.root;
  const float momentum = c.momentum;
  const float* theta = parameters.data();
  const float* v = moments.second.data();
  const auto unit = [=](std::size_t i) { return plain + root * std::sqrt(v[i]); };
  if (moments.first.empty()) {
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const float numerator = finite_or_zero(theta[i] * unit(i));
      out[i] = v[i] > 0.0F ? numerator : 0.0F;
    }
    return;
  }
  const float* m = moments.first.data();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const float numerator = finite_or_zero(theta[i] * unit(i) + m[i] * momentum);
    out[i] = v[i] > 0.0F ? numerator : 0.0F;
  }
}

Status check_moment(std::string_view which, bool kept, std::span<const float> moment, std::uint64_t count) {
  if (moment.empty() || (kept && moment.size() == count)) return {};
  const std::string name(which);
  if (!kept) return invalid("this optimizer keeps no " + name + " moment; give none");
  return invalid("the " + name + " moment has " + std::to_string(moment.size()) +
                 " values where the tensor has " + std::to_string(count));
}

Status check(const OptimizerSettings& settings, std::uint64_t count, const MomentsView& moments,
             std::uint64_t out_count) {
  RETURN_IF_ERROR(check_settings(settings));
  if (out_count != count) {
    return invalid("the output has " + std::to_string(out_count) + " values where the tensor has " +
                   std::to_string(count));
  }
  const bool first = has_first_moment(settings.kind);
  const bool second = has_second_moment(settings.kind);
  RETURN_IF_ERROR(check_moment("first", first, moments.first, count));
  RETURN_IF_ERROR(check_moment("second", second, moments.second, count));
  if (first && second && moments.first.empty() != moments.second.empty()) {
    return invalid("one of Adam's two moments is missing; give both or none");
  }
  return {};
}

}  // namespace

Result<SignificanceCoefficients> significance_coefficients(const OptimizerSettings& settings,
                                                           std::uint64_t steps, bool has_first,
                                                           bool has_second) {
  RETURN_IF_ERROR(check_settings(settings));
  const FloatEnvironment environment;
  return rounded(settings, steps, has_first, has_second);
}

Status significance(const OptimizerSettings& settings, std::span<const float> parameters,
                    const MomentsView& moments, std::span<float> out) {
  RETURN_IF_ERROR(check(settings, parameters.size(), moments, out.size()));
  const FloatEnvironment environment;
  const SignificanceCoefficients c =
      rounded(settings, moments.steps, !moments.first.empty(), !moments.second.empty());
  if (!c.is_defined) {
    for (float& value : out) value = 0.0F;
  } else if (moments.second.empty()) {
    write_without_second(c, parameters, moments.first, out.data());
  } else {
    write_with_second(c, parameters, moments, out.data());
  }
  return {};
}

void count_rounding_to(DType parameters, std::span<float> significance) noexcept {
  if (parameters != DType::kBF16 && parameters != DType::kF16) return;
  const FloatEnvironment environment;
  const float factor = parameters == DType::kBF16 ? 0x1p16F : 0x1p13F;
  for (float& value : significance) value *= factor;
}

}  // namespace deltawire
