// Weights that live once in the cluster: each rank owns a share of the keys, with their weights and their
// optimizer's state, and steps them. What the others have of a weight is a view, pulled when a batch needs
// it.
//
//   pull   a rank asks each owner for the keys of its batch (KeyRequests). Owners bring these weights up and
//          send them back, coded for those keys alone.
//   push   a rank sends each owner its gradient at the keys it has asked for, in their order: values without
//          keys. Owners add up all ranks', in rank order, and step.
//
// Why not changes of weights to all: with L2, and with Adam, a weight changes in every step, so that no list
// of keys that were stepped brings a view up to date; its owner can, when it is asked. And a batch has fewer
// keys than all ranks' together.
//
// Keys are dealt as `direct` deals them (reduce/patterns/key_deal.h). A weight's value is made by the
// operations that every rank makes with `gather`, in the same order: with codecs that lose nothing, AdaGrad
// and Adam give its bits. A lossy codec for weights rounds views; owners keep what is exact, so that nothing
// adds up.
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
#include "linear/owned_cost.h"
#include "reduce/patterns/key_deal.h"
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

  // As LazyOptimizer's. Before the first step.
  void keep_average(double power) { optimizer_.keep_average(power); }

  // Collective: view[key] is the weight of each of `keys`, as after every step so far, and coded as weights
  // are. Keys grow strictly. An owner's own are exact. Errors: those of the exchange, of Channel and of
  // KeyRequests::ask.
  Result<OwnedCost> pull(std::span<const std::uint32_t> keys, std::span<float> view);

  // Collective: the same with what training has come to, LazyOptimizer::result, and exact. `list`: of keys
  // that are pulled again, as in KeyRequests::ask. Errors: as of pull.
  Result<OwnedCost> pull_results(std::span<const std::uint32_t> keys, std::span<float> view,
                                 std::optional<std::uint32_t> list);

  // Collective: one step with the mean over ranks of their gradients, whose keys are among those of the last
  // pull(). Errors: as of pull, and kRange where one is refused (Exchange::refuse_large).
  Result<OwnedCost> push(const Pairs& gradient);

  // The sum of squares of the results owned here.
  double squares_of_results() { return optimizer_.squares_of_results(weights_); }

  // Adds `factor` times each result owned here to `sums`, by key. After squares_of_results(), with no step
  // since.
  void add_results(double factor, std::span<double> sums) const;

  // Of weights and optimizer, owned here; without the lists that are kept.
  std::uint64_t state_bytes() const noexcept { return 4 * weights_.size() + optimizer_.state_bytes(); }

  Status save(CheckpointWriter& out) const;
  Status load(CheckpointReader& in);

 private:
  OwnedWeights(LazyOptimizer optimizer, KeyDeal deal, Exchange& exchange);

  // What is pulled: results or weights, by which channel and which list of keys.
  struct Pulled {
    Channel& channel;
    bool results;
    std::optional<std::uint32_t> list;
  };
  float value_at(std::uint32_t place, const Pulled& pulled) const noexcept {
    return pulled.results ? optimizer_.result(place, weights_) : weights_[place];
  }
  Result<OwnedCost> pull_values(std::span<const std::uint32_t> keys, std::span<float> view,
                                const Pulled& pulled);
  Status answer(const Pulled& pulled, OwnedCost& cost);
  Status trade_values(Channel& channel, std::uint16_t stage, float scale, OwnedCost& cost);
  Status note_losses(std::size_t peer, std::span<const Bytes> pieces, const MessageId& id);
  void keep_losses();
  void step(OwnedCost& cost);
  std::size_t world() const noexcept { return static_cast<std::size_t>(exchange_.world()); }
  std::size_t rank() const noexcept { return static_cast<std::size_t>(exchange_.rank()); }

  LazyOptimizer optimizer_;
  KeyDeal deal_;
  Exchange& exchange_;
  std::unique_ptr<Channel> gradients_;
  std::unique_ptr<Channel> coded_;
  std::unique_ptr<Channel> exact_;
  KeyRequests requests_;
  std::vector<float> weights_;            // by place
  std::vector<std::uint32_t> keys_;       // pulled last
  std::vector<std::vector<float>> out_;   // values on their way, by rank
  std::vector<std::vector<float>> in_;    // and those that come; an empty one is not waited for
  std::vector<float> sent_;               // of a gradient: what a message stands for,
  std::vector<std::vector<float>> left_;  // and what is missing there, by owner
  PairMerger merger_;
  std::vector<Pairs> lists_;  // by rank: what is stepped with
  Pairs mean_;
};

}  // namespace deltawire::linear
