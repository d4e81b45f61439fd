// The weights of a training, with their optimizer: all of them on every rank, stepped by all ranks in the
// same way.
//
// "Results" are what an evaluation and the model are of: averages of weights if they are kept, else the
// weights.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "deltawire/optimizer.h"
#include "linear/lazy_optimizer.h"

namespace deltawire::linear {

class TrainedWeights {
 public:
  // `average_power`: none: averages are not kept. Errors: those of LazyOptimizer::make.
  static Result<TrainedWeights> make(const OptimizerSettings& settings, std::uint64_t dimension,
                                     std::optional<double> average_power);

  Status set_learning_rate(double rate) { return optimizer_.set_learning_rate(rate); }

  // Brings the weights of these keys up to date. Keys grow strictly.
  void bring_up(std::span<const std::uint32_t> keys) { optimizer_.bring_up(keys, weights_); }

  // By key; valid for keys that are up to date.
  std::span<const float> weights() const noexcept { return weights_; }

  void step(const Pairs& mean) { optimizer_.step(mean, weights_); }

  // Brings all results up to date; returns the sum of their squares.
  double update_results();
  std::span<const float> results() const noexcept { return averages_.empty() ? weights_ : averages_; }
  std::vector<float> take_results() { return std::move(averages_.empty() ? weights_ : averages_); }

  // Memory of weights to step and of their optimizer.
  std::uint64_t state_bytes() const noexcept { return 4 * weights_.size() + optimizer_.state_bytes(); }

  Status save(CheckpointWriter& out) const;
  Status load(CheckpointReader& in);

 private:
  TrainedWeights(LazyOptimizer optimizer, std::uint64_t dimension)
      : optimizer_(std::move(optimizer)), weights_(dimension, 0.0F) {}

  LazyOptimizer optimizer_;
  std::vector<float> weights_;
  bool keeps_averages_ = false;
  std::vector<float> averages_;  // as of the last update_results()
};

}  // namespace deltawire::linear
