// Grid search for learning rate and decay: trains a model with each pair on a sample of the rows, and chooses
// the pair with the best model.
//
// Source: K. Yang et al., "FastSGD: A Fast Compressed SGD Framework for Distributed Machine Learning",
// section 4.1: "The optimal learning rate is tuned by a grid search". It doesn't say which grid; this
// one is ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "linear/block_store.h"
#include "linear/exchange.h"
#include "linear/trainer.h"

namespace deltawire::linear {

struct Grid {
  std::vector<double> rates;
  std::vector<double> decays;  // TrainSettings::rate_decay
};

// Rates from 0.001 to 1 with three decays each; ten times these rates for SGD, which has no moments.
Grid grid_for(OptimizerKind kind);

struct GridPoint {
  double learning_rate = 0;
  double rate_decay = 0;
  double loss = 0;  // the criterion; NaN if training diverged or refused the rate
  int epochs = 0;   // data epochs trained
};

struct GridReport {
  std::vector<GridPoint> tried;
  std::size_t best = 0;
  double share = 1;        // the proportion of rows in the sample
  std::uint64_t rows = 0;  // of all ranks, to train on
  bool judged_by_test =
      false;  // the criterion is the held-out loss; else, without held-out rows, the objective
};

struct GridSettings {
  Grid grid;
  double share = 0.1;              // the proportion of rows to sample, at least 1,000 to train on
  std::uint64_t memory_bytes = 0;  // the limit of this rank for its sample
  std::function<void(const GridPoint&)> tried = [](const GridPoint&) {};
  std::function<bool()> interrupted = [] { return false; };
};

// Collective: every rank calls it with the same settings and its own rows, and all make the same choice. A
// pair takes as many steps per data epoch as `train` would on all rows, and starts with the exchange's
// present state and step, as the training afterwards does, so residuals of one pair never reach another. The
// first of equal losses wins. Errors: those of Trainer::run except kRange; kRange if no pair has a finite
// loss.
Result<GridReport> search_grid(const TrainSettings& train, const GridSettings& settings, BlockStore& data,
                               Exchange& exchange);

}  // namespace deltawire::linear
