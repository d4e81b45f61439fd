#include "linear/lazy_optimizer.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/errors.h"
#include "base/float_environment.h"
#include "optim/step_rules.h"

namespace deltawire::linear {

namespace {

constexpr double kBlockShrinks = 5;  // a logarithm: down to a 150th
constexpr double kNothing = 1e-30;

}  // namespace

void StepAverage::note_step(double shrunk) {
  const auto t = static_cast<std::uint32_t>(step_weights_.size() + 1);
  const bool begins = blocks_.empty() || blocks_.back().shrunk - shrunk_ > kBlockShrinks;
  if (begins) blocks_.push_back({.first = t, .shrunk = shrunk_});
  const double weight = std::pow(static_cast<double>(t), power_);
  step_weights_.push_back(weight);
  total_ += weight;
  within_.push_back((begins ? 0 : within_.back()) + weight * std::exp(shrunk - blocks_.back().shrunk));
  shrunk_ = shrunk;
}

double StepAverage::weight_since(std::uint32_t from, double shrunk) const noexcept {
  if (from >= step_weights_.size()) return 0;
  // The block of the step that comes next: what it begins with is at most kBlockShrinks above `shrunk`.
  auto block = std::ranges::upper_bound(blocks_, from + 1, {}, &Block::first) - 1;
  double before = from + 1 == block->first ? 0 : within_[from - 1];
  double sum = 0;
  for (; block != blocks_.end(); ++block, before = 0) {
    const double factor = std::exp(block->shrunk - shrunk);
    if (factor < kNothing) break;
    const auto next = block + 1;
    const std::size_t end = next == blocks_.end() ? step_weights_.size() : next->first - 1;
    sum += factor * (within_[end - 1] - before);
  }
  return sum;
}

namespace {

Status check(const OptimizerSettings& settings) {
  RETURN_IF_ERROR(check_settings(settings));
  constexpr std::array kKinds{OptimizerKind::kSgd, OptimizerKind::kAdaGrad, OptimizerKind::kAdam};
  if (std::ranges::find(kKinds, settings.kind) == kKinds.end()) {
    return invalid("linear models train with sgd, adagrad or adam, not " + optimizer_spec(settings));
  }
  if (settings.kind == OptimizerKind::kSgd && settings.learning_rate * settings.weight_decay >= 1) {
    return invalid("learning rate times L2 is 1 or more, which would turn weights round; lower one of them");
  }
  return {};
}

}  // namespace

Result<LazyOptimizer> LazyOptimizer::make(const OptimizerSettings& settings, std::size_t count) {
  RETURN_IF_ERROR(check(settings));
  return LazyOptimizer(settings, count);
}

LazyOptimizer::LazyOptimizer(const OptimizerSettings& settings, std::size_t count)
    : settings_(settings), count_(count) {
  const bool rests = settings.weight_decay > 0 || settings.kind == OptimizerKind::kAdam;
  replays_ = rests && settings.kind != OptimizerKind::kSgd;
  if (has_first_moment(settings.kind)) first_.resize(count);
  if (has_second_moment(settings.kind)) {
    second_.assign(count, settings.kind == OptimizerKind::kAdaGrad
                              ? static_cast<float>(settings.initial_accumulator)
                              : 0.0F);
  }
  if (rests) done_.resize(count);
  shrinks_.push_back(0);
}

void LazyOptimizer::keep_average(double power) {
  average_.emplace(power, count_);
  done_.resize(count_);
}

Status LazyOptimizer::set_learning_rate(double rate) {
  OptimizerSettings changed = settings_;
  changed.learning_rate = rate;
  RETURN_IF_ERROR(check(changed));
  settings_ = changed;
  return {};
}

// Whether missed steps do not change this weight, however many they are.
bool LazyOptimizer::at_rest(std::uint32_t key, std::span<const float> weights) const noexcept {
  return weights[key] == 0 && (first_.empty() || (first_[key] == 0 && second_[key] == 0));
}

void LazyOptimizer::apply(std::uint64_t t, std::span<const std::uint32_t> keys, const float* gradient,
                          std::span<float> weights) {
  OptimizerSettings now = settings_;
  now.learning_rate = rates_[t - 1];
  const StepArrays arrays{weights.data(), first_.data(), second_.data(), gradient, keys.data(), keys.size()};
  switch (settings_.kind) {
    case OptimizerKind::kAdaGrad: return step_adagrad(now, arrays, t);
    case OptimizerKind::kAdam: return step_adam(now, arrays, t);
    default: return step_sgd(now, arrays);
  }
}

void LazyOptimizer::bring_up(std::span<const std::uint32_t> keys, std::span<float> weights) {
  if (done_.empty()) return;
  const FloatEnvironment environment;
  const auto now = static_cast<std::uint32_t>(rates_.size());
  behind_.clear();
  for (const std::uint32_t key : keys) {
    const std::uint32_t done = done_[key];
    if (done == now) continue;
    if (!at_rest(key, weights)) {
      if (replays_) {
        behind_.push_back(key);
        continue;
      }
      if (average_) average_->add(key, average_->weight_since(done, shrinks_[done]), weights[key]);
      const double factor = std::exp(shrinks_[now] - shrinks_[done]);
      weights[key] = static_cast<float>(factor * static_cast<double>(weights[key]));
    }
    done_[key] = now;
  }
  replay(weights);
}

// Takes the missed steps of the weights in `behind_`, in order, each for the weights that missed it.
void LazyOptimizer::replay(std::span<float> weights) {
  if (behind_.empty()) return;
  const auto now = static_cast<std::uint32_t>(rates_.size());
  std::ranges::sort(behind_, {}, [&](std::uint32_t key) { return done_[key]; });
  zeros_.resize(std::max(zeros_.size(), behind_.size()));
  std::size_t missing = 0;
  for (std::uint32_t step = done_[behind_.front()]; step < now; ++step) {
    while (missing < behind_.size() && done_[behind_[missing]] <= step) ++missing;
    const auto behind = std::span(behind_).first(missing);
    apply(step + 1, behind, zeros_.data(), weights);
    add_to_average(step + 1, behind, weights);
  }
  for (const std::uint32_t key : behind_) done_[key] = now;
}

// Adds these weights after step t.
void LazyOptimizer::add_to_average(std::uint64_t t, std::span<const std::uint32_t> keys,
                                   std::span<const float> weights) {
  if (!average_) return;
  const double weight = average_->weight(t);
  for (const std::uint32_t key : keys) average_->add(key, weight, weights[key]);
}

void LazyOptimizer::bring_up_all(std::span<float> weights) {
  if (done_.empty()) return;
  // In portions, to keep the list of weights behind short.
  constexpr std::size_t kAtOnce = 1 << 16;
  std::vector<std::uint32_t> keys;
  for (std::size_t begin = 0; begin < weights.size(); begin += kAtOnce) {
    keys.resize(std::min(kAtOnce, weights.size() - begin));
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::uint32_t>(begin + i);
    bring_up(keys, weights);
  }
}

double LazyOptimizer::squares_of_results(std::span<float> weights) {
  bring_up_all(weights);
  double sum = 0;
  for (std::size_t key = 0; key < weights.size(); ++key) {
    const auto value = static_cast<double>(result(static_cast<std::uint32_t>(key), weights));
    sum += value * value;
  }
  return sum;
}

void LazyOptimizer::note_rate(double rate) {
  rates_.push_back(rate);
  shrinks_.push_back(shrinks_.back() + std::log1p(-rate * settings_.weight_decay));
  if (average_) average_->note_step(shrinks_.back());
}

void LazyOptimizer::step(const Pairs& gradient, std::span<float> weights) {
  bring_up(gradient.keys, weights);
  const FloatEnvironment environment;
  note_rate(settings_.learning_rate);
  const auto now = static_cast<std::uint32_t>(rates_.size());
  if (!gradient.keys.empty()) apply(now, gradient.keys, gradient.values.data(), weights);
  add_to_average(now, gradient.keys, weights);
  if (done_.empty()) return;
  for (const std::uint32_t key : gradient.keys) done_[key] = now;
}

}  // namespace deltawire::linear
