// The weights that a training has on one rank: all of them with their optimizer, or, if weights live at
// owners (OwnedWeights), a view of those that its rows need.
//
// "Results" are what an evaluation and the model are of: averages of weights if they are kept, else the
// weights.
//
// Thread rule: one thread at a time. Collective members are called by all ranks, in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "deltawire/optimizer.h"
#include "linear/block_store.h"
#include "linear/exchange.h"
#include "linear/key_requests.h"

namespace deltawire::linear {

class TrainedWeights {
 public:
  struct Settings {
    OptimizerSettings optimizer;
    std::optional<double> average_power;  // none: averages are not kept
    std::uint64_t dimension = 1;
    bool bias = false;  // the last weight is one
  };

  // With owners if the exchange has some. `exchange` has started, and outlives this. Errors: those of
  // LazyOptimizer::make and OwnedWeights::make.
  static Result<std::unique_ptr<TrainedWeights>> make(const Settings& settings, Exchange& exchange);
  virtual ~TrainedWeights() = default;

  virtual Status set_learning_rate(double rate) = 0;

  // Whether a batch begins with pull(): else bring_up() is enough, as its keys come.
  virtual bool needs_pull() const noexcept = 0;

  // Collective: brings the weights of a batch's keys up to date. Keys grow strictly.
  virtual Status pull(std::span<const std::uint32_t> keys, StepCost& cost) = 0;
  virtual void bring_up(std::span<const std::uint32_t> keys) = 0;

  // By key; valid for keys that are up to date.
  std::span<const float> weights() const noexcept { return weights_; }

  // Collective: one step with the mean over ranks of their gradients. The gradient is used up.
  virtual Status step(Pairs& gradient, StepCost& cost) = 0;

  struct Evaluated {
    double squares = 0;  // the sum of squares of all results
    double bytes = 0;    // sent by a rank, on average
  };
  // Collective: brings results() up to date for all keys of `data`.
  virtual Result<Evaluated> update_results(BlockStore& data) = 0;
  virtual std::span<const float> results() const noexcept = 0;

  // Adds `factor` times each result to `sums`, by key, on one rank each. After update_results(), without a
  // step in between.
  virtual void add_results(double factor, std::span<double> sums) const = 0;

  // Collective: the results. With owners, rank 0 gets all of them, other ranks those that they last pulled.
  virtual Result<std::vector<float>> take_model() = 0;

  // Memory of weights to step and of their optimizer.
  virtual std::uint64_t state_bytes() const noexcept = 0;

  virtual Status save(CheckpointWriter& out) const = 0;
  virtual Status load(CheckpointReader& in) = 0;

 protected:
  explicit TrainedWeights(std::uint64_t dimension) : weights_(dimension, 0.0F) {}

  std::vector<float> weights_;
};

}  // namespace deltawire::linear
