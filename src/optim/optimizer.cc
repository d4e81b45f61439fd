#include "deltawire/optimizer.h"

#include <cmath>
#include <utility>

#include "base/float_environment.h"
#include "optim/step_rules.h"

namespace deltawire {
namespace {

void step_tensor(const OptimizerSettings& settings, const StepArrays& arrays, std::uint64_t t) {
  const FloatEnvironment environment;
  switch (settings.kind) {
    case OptimizerKind::kSgd: return step_sgd(settings, arrays);
    case OptimizerKind::kMomentum: return step_momentum(settings, arrays, t);
    case OptimizerKind::kNesterov: return step_nesterov(settings, arrays);
    case OptimizerKind::kAdaGrad: return step_adagrad(settings, arrays, t);
    case OptimizerKind::kRmsProp: return step_rmsprop(settings, arrays);
    case OptimizerKind::kAdam:
    case OptimizerKind::kAdamW: return step_adam(settings, arrays, t);
  }
}

Status count_differs(std::string_view tensor, std::string_view what, std::uint64_t found,
                     std::uint64_t expected) {
  return fail(ErrorCode::kInvalidArgument, "tensor '" + std::string(tensor) + "': " + std::to_string(found) +
                                               " " + std::string(what) + " where " +
                                               std::to_string(expected) + " are due");
}

Status check_keys(std::string_view tensor, std::span<const std::uint32_t> keys, std::uint64_t count) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool grows = i == 0 || keys[i] > keys[i - 1];
    if (grows && keys[i] < count) continue;
    return fail(ErrorCode::kInvalidArgument,
                "tensor '" + std::string(tensor) + "': key " + std::to_string(keys[i]) + " at position " +
                    std::to_string(i) +
                    (grows ? " is beyond its " + std::to_string(count) + " parameters"
                           : " does not exceed the key before; give strictly increasing keys"));
  }
  return {};
}

}  // namespace

Status Optimizer::set_learning_rate(double learning_rate) {
  OptimizerSettings changed = settings_;
  changed.learning_rate = learning_rate;
  if (Status valid = check_settings(changed); !valid) return valid;
  settings_ = changed;
  return {};
}

Result<Optimizer::TensorState*> Optimizer::state_for(std::string_view tensor, std::uint64_t count) {
  if (const auto found = states_.find(tensor); found != states_.end()) {
    if (Status fits = found->second.count == count
                          ? Status{}
                          : count_differs(tensor, "parameters", count, found->second.count);
        !fits) {
      return forward_error(fits);
    }
    return &found->second;
  }
  TensorState& state = states_[std::string(tensor)];
  state.count = count;
  if (has_first_moment(settings_.kind)) state.first.assign(count, 0.0F);
  if (has_second_moment(settings_.kind)) {
    const bool accumulates = settings_.kind == OptimizerKind::kAdaGrad;
    state.second.assign(count, accumulates ? static_cast<float>(settings_.initial_accumulator) : 0.0F);
  }
  return &state;
}

Status Optimizer::step(std::string_view tensor, std::span<float> parameters,
                       std::span<const float> gradient) {
  if (gradient.size() != parameters.size()) {
    return count_differs(tensor, "gradients", gradient.size(), parameters.size());
  }
  const auto state = state_for(tensor, parameters.size());
  if (!state) return forward_error(state);
  step_tensor(settings_,
              {parameters.data(), (*state)->first.data(), (*state)->second.data(), gradient.data(), nullptr,
               gradient.size()},
              ++(*state)->steps);
  return {};
}

Status Optimizer::step(std::string_view tensor, std::span<float> parameters,
                       std::span<const std::uint32_t> keys, std::span<const float> values) {
  if (keys.size() != values.size()) return count_differs(tensor, "keys", keys.size(), values.size());
  if (Status legal = check_keys(tensor, keys, parameters.size()); !legal) return legal;
  const auto state = state_for(tensor, parameters.size());
  if (!state) return forward_error(state);
  const std::uint64_t t = ++(*state)->steps;
  if (keys.empty()) return {};  // its pointer may be null, which would mean a dense gradient
  step_tensor(settings_,
              {parameters.data(), (*state)->first.data(), (*state)->second.data(), values.data(), keys.data(),
               values.size()},
              t);
  return {};
}

Status Optimizer::step(std::string_view tensor, std::span<float> parameters, const Pairs& gradient) {
  if (gradient.dimension != parameters.size()) {
    return count_differs(tensor, "elements in the gradient's dimension", gradient.dimension,
                         parameters.size());
  }
  return step(tensor, parameters, gradient.keys, gradient.values);
}

Status Optimizer::significance(std::string_view tensor, std::span<const float> parameters,
                               std::span<float> out) const {
  const MomentsView view = moments(tensor);
  // Before AdaGrad's first step its moment is the setting.
  const auto initial = static_cast<float>(settings_.initial_accumulator);
  if (settings_.kind == OptimizerKind::kAdaGrad && view.steps == 0 && initial > 0) {
    const std::vector<float> accumulator(parameters.size(), initial);
    return deltawire::significance(settings_, parameters, {0, {}, accumulator}, out);
  }
  Status written = deltawire::significance(settings_, parameters, view, out);
  if (written) return written;
  return fail(written.error().code, "tensor '" + std::string(tensor) + "': " + written.error().message);
}

MomentsView Optimizer::moments(std::string_view tensor) const {
  const auto found = states_.find(tensor);
  if (found == states_.end()) return {};
  return {found->second.steps, found->second.first, found->second.second};
}

std::span<float> Optimizer::momentum(std::string_view tensor) {
  const auto found = states_.find(tensor);
  return found == states_.end() ? std::span<float>{} : std::span<float>(found->second.first);
}

Result<Optimizer> make_optimizer(const OptimizerSettings& settings) {
  if (Status valid = check_settings(settings); !valid) return forward_error(valid);
  return Optimizer(settings);
}

Result<Optimizer> make_optimizer(std::string_view spec) {
  const auto settings = parse_optimizer(spec);
  if (!settings) return forward_error(settings);
  return make_optimizer(*settings);
}

}  // namespace deltawire
