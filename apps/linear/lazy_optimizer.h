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
#include <vector>

#include "deltawire/optimizer.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "linear/checkpoint_file.h"
#include "linear/step_average.h"

namespace deltawire::linear {

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

  // The moments, and which steps each weight has taken. Together with the weights this is the whole state.
  // load() requires as many weights and the same kind. Errors: those of CheckpointReader.
  Status save(CheckpointWriter& out) const;
  Status load(CheckpointReader& in);

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
