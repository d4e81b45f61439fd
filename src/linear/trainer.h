// Training: data epochs of minibatch steps on a rank's rows, with all ranks' gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/optimizer.h"
#include "linear/block_store.h"
#include "linear/checkpoints.h"
#include "linear/convergence.h"
#include "linear/epoch_rows.h"
#include "linear/exchange.h"
#include "linear/lazy_optimizer.h"
#include "linear/objective.h"
#include "linear/owned_weights.h"

namespace deltawire::linear {

// What an optimizer trains with where nothing else is asked for: within 1 % of the minimum of most objectives
// with L2 1e-4 and features around 1 (docs/guides/sparse-linear.md has the figures).
struct Rates {
  double learning_rate = 0;
  double decay = 0;  // TrainSettings::rate_decay
};
Rates default_rates(OptimizerKind kind) noexcept;

struct TrainSettings {
  Loss loss = Loss::kLogistic;
  OptimizerSettings optimizer;  // its weight decay is the factor of L2
  double rate_decay = 0;        // data epoch e, from 0, has the learning rate over (1 + e rate_decay)
  double batch = 0.02;          // below or equal to 1: a share of all rows; above: rows, of all ranks
  int epochs = 300;
  double stop = 0.01;  // ends when EpochReport::gap is at most this; 0: never early
  std::uint64_t seed = 1;
  bool bias = true;  // a last feature that every row has, of value 1, with a weight like others'
  // Evaluations and the model are of averages of weights over all steps, step t counting t^this; none: of the
  // last weights. Gradients of steps are of those in any case.
  std::optional<double> average_power = 3;

  // Whether EpochReport::gap is an upper bound, and not an estimate.
  bool gap_is_bound() const noexcept { return bounds_gap(loss, optimizer.weight_decay); }
};

// All ranks' together, after a data epoch.
struct EpochReport {
  int epoch = 0;          // from 1
  double train_loss = 0;  // the mean loss of a row, L2 left out
  double objective = 0;   // that, and L2's part: what training minimizes
  double test_loss = 0;   // of the rows held out; NaN where there are none
  double accuracy = 0;    // of the rows held out: the share whose margin has the label's sign, NaN likewise
  // What these two would be of a model that guesses the same for every row: the constant margin with the
  // least loss on the training rows. NaN likewise.
  double constant_loss = 0;
  double constant_accuracy = 0;
  // objective / its minimum - 1: an upper bound of it, by the gradient of all training rows, or with
  // !gap_is_bound() an estimate (convergence.h). NaN where it is not known: a bound is looked for after every
  // data epoch with `stop`, else after the last one.
  double gap = 0;
  double seconds = 0;                 // of training so far, wall clock, evaluations left out
  double rows_per_second = 0;         // in this data epoch
  double bytes_per_step = 0;          // that a rank sent, on average
  double bytes_sent = 0;              // by a rank, on average, of training so far
  double weights_bytes_per_step = 0;  // of bytes_per_step: weights that an owner sent back
  double evaluation_bytes = 0;        // that a rank sent for this evaluation, on average; in no other figure
  double plain_ratio = 0;             // 8 bytes for each pair and peer / bytes sent; NaN with one rank

  // Of this data epoch, means over ranks: the five of the paper's table 4, and what checkpoints took.
  double compute_seconds = 0;  // gradients, with the reading of rows
  double encode_seconds = 0;
  double exchange_seconds = 0;  // sending, and waiting for others
  double decode_seconds = 0;
  double update_seconds = 0;  // of weights and moments, and of what they had missed
  double checkpoint_seconds = 0;
};

struct TrainedModel {
  // Or their averages. The bias is the last where there is one. With owners rank 0 has all, another rank what
  // it last needed.
  std::vector<float> weights;
  double state_bytes = 0;  // of weights to step and of the optimizer, on the rank that has most
  std::vector<EpochReport> epochs;
  bool converged = false;  // ended by `stop`, and not because all data epochs were done
};

struct TrainHooks {
  std::function<void(const EpochReport&)> epoch = [](const EpochReport&) {};
  std::function<bool()> interrupted = [] { return false; };
  Checkpoints* checkpoints = nullptr;  // none: nothing is kept. prepare() has been called
};

class Trainer {
 public:
  // `data`: training rows and held-out ones. Every rank calls run() with the same settings and its own rows.
  Trainer(const TrainSettings& settings, BlockStore& data, Exchange& exchange)
      : settings_(settings), data_(data), exchange_(exchange) {}

  // Errors: kInvalidArgument for data or settings that make no training (no rows, one label, a loss that the
  // labels don't fit, a batch without rows); kRange where the loss isn't finite any more; kAborted when
  // interrupted; kNoMemory; those of the exchange, of the store and of checkpoints.
  Result<TrainedModel> run(const TrainHooks& hooks);

 private:
  Result<TrainedModel> run_all(const TrainHooks& hooks);
  // Where training stands, between steps.
  struct Progress {
    std::uint64_t epoch = 0;    // data epochs that are done
    std::uint64_t batch = 0;    // and steps of this one
    std::uint64_t bytes = 0;    // in this one: sent by this rank,
    std::uint64_t plain = 0;    // and what plain pairs would have been
    std::uint64_t weights = 0;  // of `bytes`, weights that were pulled from this rank
    EpochReport report;         // of this one, this rank's so far
    std::vector<EpochReport> epochs;
  };

  Status agree();
  Status check_labels(std::uint32_t labels) const;
  Status run_epoch(const TrainHooks& hooks);
  std::uint64_t rows_before(std::uint64_t rows, std::uint64_t batch) const;
  // The rows of a data epoch.
  struct Order {
    EpochRows gradients;
    EpochRows keys;  // ahead by a batch, where a batch's weights are pulled at once
  };

  Status step(Order& order);
  Status sum_up();
  Status take_rows(EpochRows& order, std::uint64_t count, double scale);
  Status average_and_step();
  Status make_optimizer();
  Result<double> state_bytes();
  std::uint32_t mark_bias();
  // trainer_owned.cc
  Status pull_batch(EpochRows& order, std::uint64_t count);
  Status push_gradient();
  enum class KeyLists : std::uint8_t { kNew, kKept };  // at owners
  Result<double> pull_evaluated(EpochReport& report);
  Status pull_model();
  Status pull_marked(KeyLists lists, std::uint64_t& bytes);
  void count(const OwnedCost& cost);
  void bring_up(std::span<const std::uint32_t> keys);
  void mark_keys(const RowBlock& block, std::span<const std::uint32_t> rows);
  void add_gradient(const RowBlock& block, std::span<const std::uint32_t> rows, double scale);
  void add_slope(const RowBlock& block, std::size_t row, double slope);
  void collect_gradient();
  double margin_of(std::span<const float> weights, const RowBlock& block, std::size_t row) const;
  // trainer_judged.cc
  Result<double> ready_judged(EpochReport& report);
  Status evaluate(EpochReport& report);
  Status find_bound(EpochReport& report);
  void estimate_gap(EpochReport& report) const;
  Status save(Checkpoints& checkpoints);  // trainer_state.cc
  Status resume(Checkpoints& checkpoints);

  TrainSettings settings_;
  BlockStore& data_;
  Exchange& exchange_;
  std::uint64_t dimension_ = 0;
  double rows_ = 0;                          // of training, of all ranks
  std::uint64_t batches_ = 1;                // of a data epoch
  std::vector<std::uint64_t> rows_of_rank_;  // of training
  std::optional<LazyOptimizer> optimizer_;   // the one or the other
  std::unique_ptr<OwnedWeights> owned_;
  Progress progress_;
  std::vector<float> weights_;         // with owners a view of them
  std::vector<float> averages_;        // where they are kept: as of the last evaluation
  std::vector<double> sums_;           // the gradient's, by key
  std::vector<std::uint64_t> seen_;    // bits: keys of this batch
  std::vector<std::uint32_t> fresh_;   // keys new to it
  std::vector<std::uint32_t> pulled_;  // with owners: all of them
  Pairs gradient_;
};

// w.x of a row; keys beyond the weights count nothing.
double margin(const RowBlock& block, std::size_t row, std::span<const float> weights);

}  // namespace deltawire::linear
