// Training: data epochs of minibatch steps on each rank's rows, with the gradients of all ranks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "deltawire/optimizer.h"
#include "linear/block_store.h"
#include "linear/convergence.h"
#include "linear/epoch_rows.h"
#include "linear/exchange.h"
#include "linear/key_set.h"
#include "linear/lazy_optimizer.h"
#include "linear/objective.h"

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

// The figures of a data epoch, of all ranks together.
struct EpochReport {
  int epoch = 0;          // from 1
  double train_loss = 0;  // the mean loss per row, without L2
  double objective = 0;   // train_loss and L2's part: what training minimizes
  double test_loss = 0;   // of held-out rows; NaN without any
  double accuracy = 0;  // the proportion of held-out rows whose margin has the label's sign; NaN without any
  // test_loss and accuracy of a constant model: the margin with the least loss on the training rows. NaN
  // likewise.
  double constant_loss = 0;
  double constant_accuracy = 0;
  // objective / its minimum - 1: an upper bound from the gradient of all training rows, or an estimate
  // (convergence.h) if TrainSettings::gap_is_bound() is false. NaN if unknown: with `stop` the bound is
  // computed after every data epoch, else after the last one.
  double gap = 0;
  double seconds = 0;          // of training so far, without evaluations: a mean over ranks
  double rows_per_second = 0;  // in this data epoch
  double bytes_per_step = 0;   // sent by a rank, on average
  double bytes_sent = 0;       // by a rank, on average, of training so far
  double plain_ratio = 0;      // 8 bytes for each pair and peer / bytes sent; NaN with one rank

  // Times of this data epoch, means over ranks: the five parts of the paper's table 4.
  double compute_seconds = 0;  // gradients, and reading rows
  double encode_seconds = 0;
  double exchange_seconds = 0;  // sending, and waiting for others
  double decode_seconds = 0;
  double update_seconds = 0;  // weights and moments, with missed steps
};

struct EpochFigure {
  const char* name = nullptr;  // in reports
  double EpochReport::* member = nullptr;
};

// The times of a data epoch are the last.
inline constexpr std::array kEpochFigures{
    EpochFigure{"train_loss", &EpochReport::train_loss},
    EpochFigure{"objective", &EpochReport::objective},
    EpochFigure{"test_loss", &EpochReport::test_loss},
    EpochFigure{"accuracy", &EpochReport::accuracy},
    EpochFigure{"constant_loss", &EpochReport::constant_loss},
    EpochFigure{"constant_accuracy", &EpochReport::constant_accuracy},
    EpochFigure{"gap", &EpochReport::gap},
    EpochFigure{"seconds", &EpochReport::seconds},
    EpochFigure{"rows_per_second", &EpochReport::rows_per_second},
    EpochFigure{"bytes_per_step", &EpochReport::bytes_per_step},
    EpochFigure{"bytes_sent", &EpochReport::bytes_sent},
    EpochFigure{"times_smaller_than_plain_pairs", &EpochReport::plain_ratio},
    EpochFigure{"compute_seconds", &EpochReport::compute_seconds},
    EpochFigure{"encode_seconds", &EpochReport::encode_seconds},
    EpochFigure{"exchange_seconds", &EpochReport::exchange_seconds},
    EpochFigure{"decode_seconds", &EpochReport::decode_seconds},
    EpochFigure{"update_seconds", &EpochReport::update_seconds},
};
inline constexpr std::size_t kEpochTimes = 5;

struct TrainedModel {
  std::vector<float> weights;     // or their averages. The bias, if any, is the last
  std::uint64_t state_bytes = 0;  // of a rank's weights to step and of its optimizer
  std::vector<EpochReport> epochs;
  bool converged = false;  // ended by `stop`, not after all data epochs
};

struct TrainHooks {
  std::function<void(const EpochReport&)> epoch = [](const EpochReport&) {};
  std::function<bool()> interrupted = [] { return false; };
};

class Trainer {
 public:
  // `data`: training and held-out rows. Every rank calls run() with the same settings and its own rows.
  Trainer(const TrainSettings& settings, BlockStore& data, Exchange& exchange)
      : settings_(settings), data_(data), exchange_(exchange) {}

  // Errors: kInvalidArgument for data or settings that cannot be trained (no rows, one label, labels that do
  // not fit the loss); kRange if the loss becomes infinite or NaN; kAborted when interrupted; kNoMemory;
  // those of the exchange and of the store.
  Result<TrainedModel> run(const TrainHooks& hooks);

 private:
  // Between steps.
  struct Progress {
    std::uint64_t epoch = 0;  // data epochs done
    std::uint64_t batch = 0;  // and steps of the present one
    std::uint64_t bytes = 0;  // in the present one: sent by this rank,
    std::uint64_t plain = 0;  // and what plain pairs would have taken
    EpochReport report;       // the present one's, of this rank so far
    std::vector<EpochReport> epochs;
  };

  Result<TrainedModel> run_all(const TrainHooks& hooks);
  Status agree();
  Status run_epoch(const TrainHooks& hooks);
  Status step(EpochRows& order);
  Status add_rows(EpochRows& order, std::uint64_t count, double scale);
  void add_gradient(const RowBlock& block, std::span<const std::uint32_t> rows, double scale);
  void add_slope(const RowBlock& block, std::size_t row, double slope);
  void collect_gradient();
  Status sum_up();
  std::uint32_t bias_key() const noexcept { return static_cast<std::uint32_t>(dimension_ - 1); }
  // What an evaluation and the model are of: averages of weights if they are kept, else the weights.
  std::vector<float>& results() noexcept { return averages_.empty() ? weights_ : averages_; }
  double update_results();
  Status evaluate(EpochReport& report);
  Status find_bound(EpochReport& report);

  TrainSettings settings_;
  BlockStore& data_;
  Exchange& exchange_;
  std::uint64_t dimension_ = 0;
  double rows_ = 0;                          // training rows of all ranks
  std::uint64_t batches_ = 1;                // per data epoch
  std::vector<std::uint64_t> rows_of_rank_;  // training rows, by rank
  // All weights are on every rank, stepped by all ranks in the same way.
  std::optional<LazyOptimizer> optimizer_;
  std::vector<float> weights_;   // by key; valid for keys that are up to date
  std::vector<float> averages_;  // as of the last evaluation
  Progress progress_;
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
