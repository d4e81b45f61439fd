// Weights that live once in the cluster: each rank owns a part of the keys, with their weights and optimizer
// state, and steps them. Other ranks have a view of a weight, pulled when a batch needs it.
//
//   pull   a rank requests the keys of its batch from their owners (KeyRequests). Owners bring these weights
//          up to date and send them back, encoded for those keys.
//   push   a rank sends each owner its gradient at the requested keys, in their order: values without keys.
//          Owners add the gradients of all ranks, in rank order, and step.
//
// Sending changed weights to all ranks instead would not work: with L2, and with Adam, every weight changes
// in every step, so that a list of stepped keys does not bring a view up to date. And a batch has fewer keys
// than all ranks together.
//
// Keys are partitioned as in `direct` (reduce/patterns/key_partition.h). A weight is computed by the
// operations that every rank makes with `gather`, in the same order: with lossless codecs, AdaGrad and Adam
// give the same bits. A lossy codec for weights rounds the views only; owners keep exact weights, so that
// errors do not accumulate.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/optimizer.h"
#include "linear/exchange.h"
#include "linear/key_requests.h"
#include "linear/lazy_optimizer.h"
#include "reduce/patterns/key_partition.h"
#include "reduce/patterns/merge_pairs.h"

namespace deltawire::linear {

// Thread rule: one thread at a time. Collective members are called by all ranks, in the same order.
class OwnedWeights {
 public:
  // `exchange` has started with owners, and outlives this. Errors: those of LazyOptimizer::make and
  // make_channel.
  static Result<std::unique_ptr<OwnedWeights>> make(const OptimizerSettings& settings,
                                                    std::uint64_t dimension, Exchange& exchange);

  Status set_learning_rate(double rate) { return optimizer_.set_learning_rate(rate); }

  // As LazyOptimizer::keep_average.
  void keep_average(double power) { optimizer_.keep_average(power); }

  // Collective: sets view[key] to the current weight of each of `keys`, as the codec for weights transmits
  // it. Keys grow strictly. Weights that this rank owns are exact. Errors: those of the exchange, of Channel
  // and of KeyRequests::ask.
  Result<StepCost> pull(std::span<const std::uint32_t> keys, std::span<float> view);

  // Collective: the same for the results of training (LazyOptimizer::result), without loss. `list`: the
  // number of a list that is pulled repeatedly, as in KeyRequests::ask. Errors: as of pull.
  Result<StepCost> pull_results(std::span<const std::uint32_t> keys, std::span<float> view,
                                std::optional<std::uint32_t> list);

  // Collective: one step with the mean of all ranks' gradients, whose keys are among those of the last
  // pull(). Errors: as of pull.
  Result<StepCost> push(const Pairs& gradient);

  // The sum of squares of the results owned here.
  double squares_of_results() { return optimizer_.squares_of_results(weights_); }

  // Adds `factor` times each result owned here to `sums`, by key. After squares_of_results(), without a step
  // in between.
  void add_results(double factor, std::span<double> sums) const;

  // Of the weights and optimizer state owned here, without the kept requests.
  std::uint64_t state_bytes() const noexcept { return 4 * weights_.size() + optimizer_.state_bytes(); }

  Status save(CheckpointWriter& out) const;
  Status load(CheckpointReader& in);

 private:
  OwnedWeights(LazyOptimizer optimizer, KeyPartition partition, Exchange& exchange);

  // What to pull: weights or results, through which channel, for which list of keys.
  struct Pull {
    Channel& channel;
    bool results;
    std::optional<std::uint32_t> list;
  };
  float value_at(std::uint32_t place, const Pull& pull) const noexcept {
    return pull.results ? optimizer_.result(place, weights_) : weights_[place];
  }
  Result<StepCost> pull_values(std::span<const std::uint32_t> keys, std::span<float> view, const Pull& pull);
  Status answer(const Pull& pull, StepCost& cost);
  Status exchange_values(Channel& channel, std::uint16_t stage, float scale, StepCost& cost);
  Status note_losses(std::size_t peer, std::span<const Bytes> pieces, const MessageId& id);
  void keep_losses();
  void step(StepCost& cost);
  std::size_t world() const noexcept { return static_cast<std::size_t>(exchange_.world()); }
  std::size_t rank() const noexcept { return static_cast<std::size_t>(exchange_.rank()); }

  LazyOptimizer optimizer_;
  KeyPartition partition_;
  Exchange& exchange_;
  std::unique_ptr<Channel> gradients_;
  std::unique_ptr<Channel> coded_;
  std::unique_ptr<Channel> exact_;
  KeyRequests requests_;
  std::vector<float> weights_;            // owned here, by position
  std::vector<std::uint32_t> keys_;       // of the last pull
  std::vector<std::vector<float>> out_;   // values to send, by rank
  std::vector<std::vector<float>> in_;    // values to receive; empty: none expected
  std::vector<float> sent_;               // a gradient as its message transmits it
  std::vector<std::vector<float>> left_;  // what that leaves out, by owner
  PairMerger merger_;
  std::vector<Pairs> lists_;  // gradients of the step, by rank
  Pairs mean_;
};

}  // namespace deltawire::linear
