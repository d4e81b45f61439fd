// Training: data epochs of minibatch steps on each rank's rows, with the gradients of all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/optimizer.h"
#include "linear/block_store.h"
#include "linear/checkpoints.h"
#include "linear/convergence.h"
#include "linear/epoch_rows.h"
#include "linear/exchange.h"
#include "linear/key_set.h"
#include "linear/lazy_optimizer.h"
#include "linear/objective.h"
#include "linear/training_progress.h"

namespace deltawire::linear {

// The default rates of an optimizer: within 1 % of the minimum of most objectives with L2 1e-4 and features
// around 1 (apps/linear/README.md has the figures).
struct Rates {
  double learning_rate = 0;
  double decay = 0;  // TrainSettings::rate_decay
};
Rates default_rates(OptimizerKind kind) noexcept;

struct TrainSettings {
  Loss loss = Loss::kLogistic;
  OptimizerSettings optimizer;  // its weight decay is the factor of L2
  double rate_decay = 0;        // data epoch e, from 0, has learning_rate / (1 + e rate_decay)
  double batch = 0.02;          // up to 1: a proportion of all rows; above: rows of all ranks
  int epochs = 300;
  double stop = 0.01;  // ends once EpochReport::gap is at most this; 0: never early
  std::uint64_t seed = 1;
  bool bias = true;  // adds a last feature of value 1 to every row, with a weight like the others
  // Evaluations and the model use averages of weights over all steps, with weight t^this for step t; none:
  // the last weights. Gradients always use the last weights.
  std::optional<double> average_power = 3;

  // Whether EpochReport::gap is an upper bound instead of an estimate.
  bool gap_is_bound() const noexcept { return bounds_gap(loss, optimizer.weight_decay); }
};

struct TrainedModel {
  std::vector<float> weights;     // or their averages. The bias, if any, is the last
  std::uint64_t state_bytes = 0;  // of a rank's weights to step and of its optimizer
  std::vector<EpochReport> epochs;
  bool converged = false;  // ended by `stop`, not after all data epochs
};

struct TrainHooks {
  std::function<void(const EpochReport&)> epoch = [](const EpochReport&) {};
  std::function<bool()> interrupted = [] { return false; };
  Checkpoints* checkpoints = nullptr;  // none: no checkpoints. prepare() has been called
};

class Trainer {
 public:
  // `data`: training and held-out rows. Every rank calls run() with the same settings and its own rows.
  Trainer(const TrainSettings& settings, BlockStore& data, Exchange& exchange)
      : settings_(settings), data_(data), exchange_(exchange) {}

  // Errors: kInvalidArgument for data or settings that cannot be trained (no rows, one label, labels that do
  // not fit the loss); kRange if the loss becomes infinite or NaN; kAborted when interrupted; kNoMemory;
  // those of the exchange, of the store and of checkpoints.
  Result<TrainedModel> run(const TrainHooks& hooks);

 private:
  Result<TrainedModel> run_all(const TrainHooks& hooks);
  Status agree();
  Status make_weights();
  Status run_epoch(const TrainHooks& hooks);
  Status step(EpochRows& order);
  Status add_rows(EpochRows& order, std::uint64_t count, double scale);
  void add_gradient(const RowBlock& block, std::span<const std::uint32_t> rows, double scale);
  void add_slope(const RowBlock& block, std::size_t row, double slope);
  void collect_gradient();
  Status sum_up();
  std::uint32_t bias_key() const noexcept { return static_cast<std::uint32_t>(dimension_ - 1); }
  Status save(Checkpoints& checkpoints);
  Status resume(Checkpoints& checkpoints);
  Status evaluate(EpochReport& report);
  Status find_bound(EpochReport& report);

  TrainSettings settings_;
  BlockStore& data_;
  Exchange& exchange_;
  std::uint64_t dimension_ = 0;
  double rows_ = 0;                          // training rows of all ranks
  std::uint64_t batches_ = 1;                // per data epoch
  std::vector<std::uint64_t> rows_of_rank_;  // training rows, by rank
  std::optional<TrainedWeights> weights_;
  TrainingProgress progress_;
  KeySet keys_;                       // of this batch
  std::vector<std::uint32_t> fresh_;  // keys new to it
  std::vector<double> sums_;          // the gradient, by key; 0 between batches
  Pairs gradient_;
};

// w.x of a row. Keys beyond the weights count as 0.
double margin(const RowBlock& block, std::size_t row, std::span<const float> weights);

// The same with a bias, the last weight, if `bias`.
double margin(const RowBlock& block, std::size_t row, std::span<const float> weights, bool bias);

}  // namespace deltawire::linear
