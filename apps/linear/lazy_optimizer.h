// Optimizer steps with L2 on all weights, paid for only where a gradient has a key.
//
// L2 pulls every weight in every step, and Adam's moments decay in every step, but a batch of sparse rows has
// few keys. So a weight rests until it is read or stepped, and then makes up for the steps that it has
// missed: all of them, in order, with the gradient 0 and their own learning rates. The result is that of
// Optimizer::step with dense gradients: AdaGrad and Adam take the same float32 operations, bit for bit. For
// SGD what was missed is one factor, the product of all (1 - rate l2), kept as a sum of logarithms in
// float64.
//
// The same holds for averages of weights over steps (StepAverage), if they are kept: a weight that rests has
// its share of the average by then added when it makes up.
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

// Memory: of a weight, 4 bytes for each moment, and 4 where weights rest; with averages 12 in the place of
// those 4. Thread rule: one thread at a time.
class LazyOptimizer {
 public:
  // `settings.weight_decay` is the factor of L2. Errors: kInvalidArgument for settings out of range, kinds
  // other than kSgd, kAdaGrad and kAdam, and for SGD where rate times weight decay is 1 or more.
  static Result<LazyOptimizer> make(const OptimizerSettings& settings, std::size_t count);

  // From now on averages over steps are kept, step t counting t^power. Before the first step.
  void keep_average(double power);

  // Of the steps to come. Errors: as above.
  Status set_learning_rate(double rate);

  // The weights of these keys are as if every step so far had been dense.
  void bring_up(std::span<const std::uint32_t> keys, std::span<float> weights);
  void bring_up_all(std::span<float> weights);

  // What training has come to at a key: the average where such are kept, else the weight. REQUIRES: this
  // weight has been brought up.
  float result(std::uint32_t key, std::span<const float> weights) const noexcept {
    return average_ ? average_->of(key) : weights[key];
  }
  // The sum of squares of all results. Brings up all weights.
  double squares_of_results(std::span<float> weights);

  // One step, in which a weight without a key has the gradient 0. Keys grow strictly and are below the count.
  void step(const Pairs& gradient, std::span<float> weights);

  // Moments, and what each weight has missed: with the weights as they rest, what the next step needs. load
  // takes the state of an optimizer of as many weights and the same kind. Errors: those of CheckpointReader.
  Status save(CheckpointWriter& out) const;
  Status load(CheckpointReader& in);

  // Of moments, averages and what is known of missed steps, in memory; weights are the caller's.
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
  bool replays_ = false;  // a missed step changes something, and has to be taken by itself
  std::vector<float> first_;
  std::vector<float> second_;
  std::vector<std::uint32_t> done_;  // by weight: the steps that it has taken; none where it can miss nothing
  std::vector<double> rates_;        // by step, from 0
  std::vector<double> shrinks_;      // by number of steps, the sum of log(1 - rate l2); for SGD
  std::optional<StepAverage> average_;
  std::vector<std::uint32_t> behind_;
  std::vector<float> zeros_;
};

}  // namespace deltawire::linear
