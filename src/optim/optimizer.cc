#include "deltawire/optimizer.h"

#include <cassert>
#include <utility>

#include "base/byte_writer.h"
#include "base/checked.h"
#include "base/crc32c.h"
#include "base/errors.h"
#include "base/float_environment.h"
#include "base/format_version.h"
#include "base/little_endian.h"
#include "optim/factored_step.h"
#include "optim/step_rules.h"

namespace deltawire {
namespace {

void step_tensor(const OptimizerSettings& settings, const StepArrays& arrays, std::uint64_t t) {
  assert(t > 0);
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
  return invalid("tensor '" + std::string(tensor) + "': " + std::to_string(found) + " " + std::string(what) +
                 " where " + std::to_string(expected) + " are due");
}

Status check_keys(std::string_view tensor, std::span<const std::uint32_t> keys, std::uint64_t count) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const bool grows = i == 0 || keys[i] > keys[i - 1];
    if (grows && keys[i] < count) continue;
    return invalid("tensor '" + std::string(tensor) + "': key " + std::to_string(keys[i]) + " at position " +
                   std::to_string(i) +
                   (grows ? " is beyond its " + std::to_string(count) + " parameters"
                          : " does not exceed the key before; give strictly increasing keys"));
  }
  return {};
}

// A saved state (docs/reference/format.md, "Optimizer state").
constexpr std::string_view kMagic = "DWOPTIM\n";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kHeadBytes = 20;       // magic, u32 version, u32 kind, u32 entries
constexpr std::uint64_t kEntryHeadBytes = 20;  // u32 length of the name, u64 steps, u64 count

Status ends_early() {
  return truncated("optimizer state: ends within an entry; the bytes were cut");
}

}  // namespace

Status Optimizer::set_learning_rate(double learning_rate) {
  OptimizerSettings changed = settings_;
  changed.learning_rate = learning_rate;
  RETURN_IF_ERROR(check_settings(changed));
  settings_ = changed;
  return {};
}

Result<Optimizer::TensorState*> Optimizer::state_for(std::string_view tensor, std::uint64_t count) {
  if (const auto found = states_.find(tensor); found != states_.end()) {
    RETURN_IF_ERROR(found->second.count == count
                        ? Status{}
                        : count_differs(tensor, "parameters", count, found->second.count));
    assert(found->second.first.empty() || found->second.first.size() == count);
    assert(found->second.second.empty() || found->second.second.size() == count);
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
  return step_by(settings_, tensor, parameters, gradient);
}

Status Optimizer::step_by(const OptimizerSettings& settings, std::string_view tensor,
                          std::span<float> parameters, std::span<const float> gradient,
                          const FactoredStep* factored) {
  assert(settings.kind == settings_.kind);
  if (gradient.size() != parameters.size()) {
    return count_differs(tensor, "gradients", gradient.size(), parameters.size());
  }
  ASSIGN_OR_RETURN(const auto state, state_for(tensor, parameters.size()));
  const StepArrays arrays{parameters.data(), state->first.data(), state->second.data(), gradient.data(),
                          nullptr,           gradient.size()};
  ++state->steps;
  if (factored != nullptr) {
    const FloatEnvironment environment;
    step_adam_factored(settings, arrays, state->steps, *factored);
  } else {
    step_tensor(settings, arrays, state->steps);
  }
  return {};
}

Status Optimizer::step(std::string_view tensor, std::span<float> parameters,
                       std::span<const std::uint32_t> keys, std::span<const float> values) {
  if (keys.size() != values.size()) return count_differs(tensor, "keys", keys.size(), values.size());
  RETURN_IF_ERROR(check_keys(tensor, keys, parameters.size()));
  ASSIGN_OR_RETURN(const auto state, state_for(tensor, parameters.size()));
  const std::uint64_t t = ++state->steps;
  if (keys.empty()) return {};  // its pointer may be null, which would mean a dense gradient
  step_tensor(settings_,
              {parameters.data(), state->first.data(), state->second.data(), values.data(), keys.data(),
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
  RETURN_IF_ERROR(check_settings(settings));
  return Optimizer(settings);
}

Result<Optimizer> make_optimizer(std::string_view spec) {
  ASSIGN_OR_RETURN(const auto settings, parse_optimizer(spec));
  return make_optimizer(settings);
}

std::vector<std::byte> Optimizer::save() const {
  std::uint64_t bytes = kHeadBytes + 4;
  for (const auto& [name, state] : states_) {
    bytes += kEntryHeadBytes + name.size() + 4 * (state.first.size() + state.second.size());
  }
  std::vector<std::byte> out(bytes);
  ByteWriter writer(out);
  writer.text(kMagic);
  writer.number<std::uint32_t>(kVersion);
  writer.number<std::uint32_t>(static_cast<std::uint32_t>(settings_.kind));
  writer.number<std::uint32_t>(static_cast<std::uint32_t>(states_.size()));
  for (const auto& [name, state] : states_) {
    assert(!has_first_moment(settings_.kind) || state.first.size() == state.count);
    assert(!has_second_moment(settings_.kind) || state.second.size() == state.count);
    writer.number<std::uint32_t>(static_cast<std::uint32_t>(name.size()));
    writer.number<std::uint64_t>(state.steps);
    writer.number<std::uint64_t>(state.count);
    writer.text(name);
    writer.floats(state.first);
    writer.floats(state.second);
  }
  writer.number<std::uint32_t>(crc32c(Bytes(out).first(bytes - 4)));
  return out;
}

Status Optimizer::load(Bytes bytes) {
  ASSIGN_OR_RETURN(Bytes rest, body_of_state("optimizer state", bytes, kMagic, kVersion, kHeadBytes));
  if (load_le<std::uint32_t>(bytes.data() + 12) != static_cast<std::uint32_t>(settings_.kind)) {
    return mismatch("optimizer state: saved by another kind of optimizer; load it with the same kind");
  }
  const auto entries = load_le<std::uint32_t>(bytes.data() + 16);
  const std::uint64_t moments =
      (has_first_moment(settings_.kind) ? 1U : 0U) + (has_second_moment(settings_.kind) ? 1U : 0U);
  decltype(states_) loaded;
  for (std::uint32_t i = 0; i < entries; ++i) {
    if (rest.size() < kEntryHeadBytes) return ends_early();
    const std::uint64_t name_bytes = load_le<std::uint32_t>(rest.data());
    TensorState state;
    state.steps = load_le<std::uint64_t>(rest.data() + 4);
    state.count = load_le<std::uint64_t>(rest.data() + 12);
    rest = rest.subspan(kEntryHeadBytes);
    if (name_bytes > rest.size()) return ends_early();
    std::string name(reinterpret_cast<const char*>(rest.data()), name_bytes);
    rest = rest.subspan(name_bytes);
    const auto value_bytes = checked_mul(state.count, 4 * moments);
    if (!value_bytes || *value_bytes > rest.size()) return ends_early();
    if (has_first_moment(settings_.kind)) state.first = take_floats(rest, state.count);
    if (has_second_moment(settings_.kind)) state.second = take_floats(rest, state.count);
    const bool in_order = loaded.empty() || loaded.rbegin()->first < name;
    if (!in_order) {
      return corrupt("optimizer state: tensor '" + name + "' is out of order");
    }
    loaded.emplace_hint(loaded.end(), std::move(name), std::move(state));
  }
  if (!rest.empty()) return corrupt("optimizer state: bytes beyond the last entry");
  states_ = std::move(loaded);
  return {};
}

}  // namespace deltawire
