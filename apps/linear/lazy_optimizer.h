// Lazy optimizer steps: L2 acts on all weights, but a step costs time only at the keys of its gradient.
//
// L2 shrinks every weight in every step, and Adam's moments decay in every step, but a batch of sparse rows
// has few keys. So a weight is left alone until it is read or stepped, and then catches up: it takes all
// missed steps in order, with gradient 0 and the learning rates of those steps. The result is that of
// Optimizer::step with dense gradients: AdaGrad and Adam make the same float32 operations, bit for bit. For
// SGD the missed steps are one factor, the product of all (1 - rate l2), kept as a sum of logarithms in
// float64.
//
// Averages of weights over steps (StepAverage), if enabled, catch up in the same way.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/errors.h"
#include "base/float_environment.h"
#include "deltawire/optimizer.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "optim/step_rules.h"

namespace deltawire::linear {

// The average of each weight over all steps, where step t, from 1, has the weight t^power.
//
// Near the optimum of a loss with kinks, slopes do not get smaller and the weights oscillate; their average
// converges. Power 0 is the mean of all steps (Polyak, Juditsky, "Acceleration of Stochastic Approximation by
// Averaging", 1992). With larger powers the early steps, which are far off, count less: power 1 is
// Lacoste-Julien, Schmidt, Bach, "A simpler approach to obtaining an O(1/t) convergence rate for the
// projected stochastic subgradient method" (2012); the form for any power is like the polynomial-decay
// averaging of Shamir, Zhang, "Stochastic Gradient Descent for Non-smooth Optimization" (ICML 2013).
//
// A weight's steps are added one by one, or, if it only shrank by L2 under SGD, all at once.
// Memory: 8 bytes per weight and 16 per step. Thread rule: one thread at a time.
class StepAverage {
 public:
  StepAverage(double power, std::size_t weights) : power_(power), sums_(weights) {}

  // Starts the next step. `shrunk`: the logarithm of the factor by which all steps so far have multiplied a
  // weight without gradients; it never grows, and is 0 before the first step. Used by weight_since only.
  void note_step(double shrunk) {
    const auto t = static_cast<std::uint32_t>(step_weights_.size() + 1);
    const bool begins = blocks_.empty() || blocks_.back().shrunk - shrunk_ > kBlockShrinks;
    if (begins) blocks_.push_back({.first = t, .shrunk = shrunk_});
    const double weight = std::pow(static_cast<double>(t), power_);
    step_weights_.push_back(weight);
    total_ += weight;
    within_.push_back((begins ? 0 : within_.back()) + weight * std::exp(shrunk - blocks_.back().shrunk));
    shrunk_ = shrunk;
  }

  // The weight of step t, which has been noted.
  double weight(std::uint64_t t) const noexcept { return step_weights_[t - 1]; }

  // The sum that all steps after `from` add for a weight that was 1 then and has only shrunk since. `shrunk`:
  // that of note_step for step `from`.
  double weight_since(std::uint32_t from, double shrunk) const noexcept {
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

  void add(std::uint32_t key, double step_weight, float value) noexcept {
    sums_[key] += step_weight * static_cast<double>(value);
  }

  // REQUIRES: all steps of this weight have been added. 0 before the first step.
  float of(std::uint32_t key) const noexcept {
    return total_ > 0 ? static_cast<float>(sums_[key] / total_) : 0.0F;
  }

  std::uint64_t state_bytes() const noexcept { return 8 * sums_.size(); }

 private:
  static constexpr double kBlockShrinks = 5;  // a logarithm: down to a 150th
  static constexpr double kNothing = 1e-30;

  // Weights of steps are summed within blocks, scaled as they shrink. A block ends before that makes
  // differences of such sums inexact.
  struct Block {
    std::uint32_t first = 1;  // step of the block
    double shrunk = 0;        // before it
  };

  double power_;
  std::vector<double> sums_;  // by weight
  double total_ = 0;
  std::vector<double> step_weights_;  // by step
  std::vector<double> within_;        // by step: the sum within its block so far
  std::vector<Block> blocks_;
  double shrunk_ = 0;
};

// Memory per weight: 4 bytes for each moment, and 4 if steps can be missed, or 12 instead with averages.
// Thread rule: one thread at a time.
class LazyOptimizer {
 public:
  // `settings.weight_decay` is the factor of L2. Errors: kInvalidArgument for settings out of range, kinds
  // other than kSgd, kAdaGrad and kAdam, and for SGD where rate times weight decay is 1 or more.
  static Result<LazyOptimizer> make(const OptimizerSettings& settings, std::size_t count) {
    RETURN_IF_ERROR(check(settings));
    return LazyOptimizer(settings, count);
  }

  // Keeps averages over steps from now on, with weight t^power for step t. Before the first step.
  void keep_average(double power) {
    average_.emplace(power, count_);
    done_.resize(count_);
  }

  // For the steps that follow. Errors: as above.
  Status set_learning_rate(double rate) {
    OptimizerSettings changed = settings_;
    changed.learning_rate = rate;
    RETURN_IF_ERROR(check(changed));
    settings_ = changed;
    return {};
  }

  // Brings the weights of these keys up to date, as if every step so far had been dense.
  void bring_up(std::span<const std::uint32_t> keys, std::span<float> weights) {
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

  void bring_up_all(std::span<float> weights) {
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

  // The result of training at a key: the average if averages are kept, else the weight. REQUIRES: the weight
  // is up to date.
  float result(std::uint32_t key, std::span<const float> weights) const noexcept {
    return average_ ? average_->of(key) : weights[key];
  }
  // The sum of squares of all results. Brings all weights up to date.
  double squares_of_results(std::span<float> weights) {
    bring_up_all(weights);
    double sum = 0;
    for (std::size_t key = 0; key < weights.size(); ++key) {
      const auto value = static_cast<double>(result(static_cast<std::uint32_t>(key), weights));
      sum += value * value;
    }
    return sum;
  }

  // One step; weights without a key have the gradient 0. Keys grow strictly and are below the count.
  void step(const Pairs& gradient, std::span<float> weights) {
    bring_up(gradient.keys, weights);
    const FloatEnvironment environment;
    note_rate(settings_.learning_rate);
    const auto now = static_cast<std::uint32_t>(rates_.size());
    if (!gradient.keys.empty()) apply(now, gradient.keys, gradient.values.data(), weights);
    add_to_average(now, gradient.keys, weights);
    if (done_.empty()) return;
    for (const std::uint32_t key : gradient.keys) done_[key] = now;
  }

  // Memory of moments, averages and step counts, without the weights, which are the caller's.
  std::uint64_t state_bytes() const noexcept {
    return 4 * (first_.size() + second_.size() + done_.size()) + (average_ ? average_->state_bytes() : 0);
  }

  const OptimizerSettings& settings() const noexcept { return settings_; }

 private:
  static Status check(const OptimizerSettings& settings) {
    RETURN_IF_ERROR(check_settings(settings));
    constexpr std::array kKinds{OptimizerKind::kSgd, OptimizerKind::kAdaGrad, OptimizerKind::kAdam};
    if (std::ranges::find(kKinds, settings.kind) == kKinds.end()) {
      return invalid("linear models train with sgd, adagrad or adam, not " + optimizer_spec(settings));
    }
    if (settings.kind == OptimizerKind::kSgd && settings.learning_rate * settings.weight_decay >= 1) {
      return invalid(
          "learning rate times L2 is 1 or more, which would turn weights round; lower one of them");
    }
    return {};
  }

  LazyOptimizer(const OptimizerSettings& settings, std::size_t count) : settings_(settings), count_(count) {
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

  // Whether missed steps do not change this weight, however many they are.
  bool at_rest(std::uint32_t key, std::span<const float> weights) const noexcept {
    return weights[key] == 0 && (first_.empty() || (first_[key] == 0 && second_[key] == 0));
  }

  void apply(std::uint64_t t, std::span<const std::uint32_t> keys, const float* gradient,
             std::span<float> weights) {
    OptimizerSettings now = settings_;
    now.learning_rate = rates_[t - 1];
    const StepArrays arrays{weights.data(), first_.data(), second_.data(),
                            gradient,       keys.data(),   keys.size()};
    switch (settings_.kind) {
      case OptimizerKind::kAdaGrad: return step_adagrad(now, arrays, t);
      case OptimizerKind::kAdam: return step_adam(now, arrays, t);
      default: return step_sgd(now, arrays);
    }
  }

  // Takes the missed steps of the weights in `behind_`, in order, each for the weights that missed it.
  void replay(std::span<float> weights) {
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
  void add_to_average(std::uint64_t t, std::span<const std::uint32_t> keys, std::span<const float> weights) {
    if (!average_) return;
    const double weight = average_->weight(t);
    for (const std::uint32_t key : keys) average_->add(key, weight, weights[key]);
  }

  void note_rate(double rate) {
    rates_.push_back(rate);
    shrinks_.push_back(shrinks_.back() + std::log1p(-rate * settings_.weight_decay));
    if (average_) average_->note_step(shrinks_.back());
  }

  OptimizerSettings settings_;
  std::size_t count_;
  bool replays_ = false;  // missed steps must be taken one by one
  std::vector<float> first_;
  std::vector<float> second_;
  std::vector<std::uint32_t> done_;  // by weight: the steps that it has taken; empty if no step can be missed
  std::vector<double> rates_;        // by step, from 0
  std::vector<double> shrinks_;      // SGD: by number of steps, the sum of log(1 - rate l2)
  std::optional<StepAverage> average_;
  std::vector<std::uint32_t> behind_;
  std::vector<float> zeros_;
};

}  // namespace deltawire::linear
