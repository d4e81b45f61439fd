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

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "deltawire/optimizer.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

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
  void note_step(double shrunk);

  // The weight of step t, which has been noted.
  double weight(std::uint64_t t) const noexcept { return step_weights_[t - 1]; }

  // The sum that all steps after `from` add for a weight that was 1 then and has only shrunk since. `shrunk`:
  // that of note_step for step `from`.
  double weight_since(std::uint32_t from, double shrunk) const noexcept;

  void add(std::uint32_t key, double step_weight, float value) noexcept {
    sums_[key] += step_weight * static_cast<double>(value);
  }

  // REQUIRES: all steps of this weight have been added. 0 before the first step.
  float of(std::uint32_t key) const noexcept {
    return total_ > 0 ? static_cast<float>(sums_[key] / total_) : 0.0F;
  }

  std::uint64_t state_bytes() const noexcept { return 8 * sums_.size(); }

 private:
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
  static Result<LazyOptimizer> make(const OptimizerSettings& settings, std::size_t count);

  // Keeps averages over steps from now on, with weight t^power for step t. Before the first step.
  void keep_average(double power);

  // For the steps that follow. Errors: as above.
  Status set_learning_rate(double rate);

  // Brings the weights of these keys up to date, as if every step so far had been dense.
  void bring_up(std::span<const std::uint32_t> keys, std::span<float> weights);
  void bring_up_all(std::span<float> weights);

  // The result of training at a key: the average if averages are kept, else the weight. REQUIRES: the weight
  // is up to date.
  float result(std::uint32_t key, std::span<const float> weights) const noexcept {
    return average_ ? average_->of(key) : weights[key];
  }
  // The sum of squares of all results. Brings all weights up to date.
  double squares_of_results(std::span<float> weights);

  // One step; weights without a key have the gradient 0. Keys grow strictly and are below the count.
  void step(const Pairs& gradient, std::span<float> weights);

  // Memory of moments, averages and step counts, without the weights, which are the caller's.
  std::uint64_t state_bytes() const noexcept {
    return 4 * (first_.size() + second_.size() + done_.size()) + (average_ ? average_->state_bytes() : 0);
  }

  const OptimizerSettings& settings() const noexcept { return settings_; }

 private:
  LazyOptimizer(const OptimizerSettings& settings, std::size_t count);
  bool at_rest(std::uint32_t key, std::span<const float> weights) const noexcept;
  void apply(std::uint64_t t, std::span<const std::uint32_t> keys, const float* gradient,
             std::span<float> weights);
  void replay(std::span<float> weights);
  void add_to_average(std::uint64_t t, std::span<const std::uint32_t> keys, std::span<const float> weights);
  void note_rate(double rate);

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
