// Training: data epochs of minibatch steps on a rank's rows, with all ranks' gradients.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/optimizer.h"
#include "linear/block_store.h"
#include "linear/exchange.h"
#include "linear/lazy_optimizer.h"
#include "linear/objective.h"

namespace deltawire::linear {

struct TrainSettings {
  Loss loss = Loss::kLogistic;
  OptimizerSettings optimizer;  // its weight decay is the factor of L2
  double rate_decay = 0;        // data epoch e, from 0, has the learning rate over (1 + e rate_decay)
  double batch = 0.1;           // below or equal to 1: a share of all rows; above: rows, of all ranks
  int epochs = 20;
  double stop = 0.01;  // ends when the held-out loss has changed by less than so much of it; 0: never early
  std::uint64_t seed = 1;
  bool bias = false;  // a last feature that every row has, of value 1, with a weight like others'
};

// All ranks' together, after a data epoch.
struct EpochReport {
  int epoch = 0;          // from 1
  double train_loss = 0;  // the mean loss of a row, L2 left out
  double objective = 0;   // that, and L2's part: what training minimizes
  double test_loss = 0;   // of the rows held out; NaN where there are none
  double accuracy = 0;    // of the rows held out: the share whose margin has the label's sign, NaN likewise
  double seconds = 0;     // of training so far, wall clock, evaluations left out
  double rows_per_second = 0;  // in this data epoch
  double bytes_per_step = 0;   // that a rank sent, on average
  double plain_ratio = 0;      // 8 bytes for each pair and peer / bytes sent; NaN with one rank
  double compute_seconds = 0;  // of this data epoch, means over ranks: gradients and steps
  double update_seconds = 0;   // of these, steps
  double encode_seconds = 0;
  double exchange_seconds = 0;
  double decode_seconds = 0;
};

struct TrainedModel {
  std::vector<float> weights;  // the bias is the last where there is one
  std::vector<EpochReport> epochs;
  bool converged = false;  // ended by `stop`
};

struct TrainHooks {
  std::function<void(const EpochReport&)> epoch = [](const EpochReport&) {};
  std::function<bool()> interrupted = [] { return false; };
};

class Trainer {
 public:
  // `data`: training rows and held-out ones. Every rank calls run() with the same settings and its own rows.
  Trainer(const TrainSettings& settings, BlockStore& data, Exchange& exchange)
      : settings_(settings), data_(data), exchange_(exchange) {}

  // Errors: kInvalidArgument for data or settings that make no training (no rows, one label, a loss that the
  // labels don't fit, a batch without rows); kRange where the loss isn't finite any more; kAborted when
  // interrupted; those of the exchange and of the store.
  Result<TrainedModel> run(const TrainHooks& hooks);

 private:
  struct Epoch;

  Status agree();
  Status check_labels(std::uint32_t labels) const;
  Status run_epoch(int epoch, const TrainHooks& hooks, EpochReport& report);
  Status take_rows(Epoch& epoch, std::uint64_t count, double scale);
  void mark_keys(const RowBlock& block, std::span<const std::uint32_t> rows);
  void add_gradient(const RowBlock& block, std::span<const std::uint32_t> rows, double scale);
  void collect_gradient();
  double margin_of(const RowBlock& block, std::size_t row) const;
  Status evaluate(EpochReport& report);

  TrainSettings settings_;
  BlockStore& data_;
  Exchange& exchange_;
  std::uint64_t dimension_ = 0;
  std::uint64_t batches_ = 1;                // of a data epoch
  std::vector<std::uint64_t> rows_of_rank_;  // of training
  std::optional<LazyOptimizer> optimizer_;
  std::vector<float> weights_;
  std::vector<double> sums_;          // the gradient's, by key
  std::vector<std::uint64_t> seen_;   // bits: keys of this batch
  std::vector<std::uint32_t> fresh_;  // keys new to it
  Pairs gradient_;
};

// w.x of a row; keys beyond the weights count nothing.
double margin(const RowBlock& block, std::size_t row, std::span<const float> weights);

}  // namespace deltawire::linear
