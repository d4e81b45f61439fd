// Learning rate and decay by trial: each pair of a grid trains a model of its own on a sample of the rows,
// and the pair whose model is best is the one to train with.
//
// Source: K. Yang et al., "FastSGD: A Fast Compressed SGD Framework for Distributed Machine Learning",
// section 4.1: "The optimal learning rate is tuned by a grid search". It doesn't say which one; the grid is
// ours.
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

// Rates from 0.001 to 1, three decays with each. Steps of SGD, which no moment evens out, are ten times that.
Grid grid_for(OptimizerKind kind);

struct GridPoint {
  double learning_rate = 0;
  double rate_decay = 0;
  double loss = 0;  // that it is judged by; NaN where training left the numbers, or refused the rate
  int epochs = 0;   // data epochs that it took
};

struct GridReport {
  std::vector<GridPoint> tried;
  std::size_t best = 0;
  double share = 1;             // of the rows, that the sample has
  std::uint64_t rows = 0;       // to train on, that it came to; of all ranks
  bool judged_by_test = false;  // by the held-out loss; else by the objective, where no row is held out
};

struct GridSettings {
  Grid grid;
  double share = 0.1;              // of the rows, and more where that would be fewer than 1,000 to train on
  std::uint64_t memory_bytes = 0;  // of this rank, for its sample
  std::function<void(const GridPoint&)> tried = [](const GridPoint&) {};
  std::function<bool()> interrupted = [] { return false; };
};

// Every rank calls it with the same settings and its own rows, and all come to the same choice. A pair takes
// as many steps a data epoch as `train` would on all rows, and begins with the exchange's state and step as
// they are now, as training afterwards does: what one pair leaves for later is nobody else's. Where losses
// are equal the first wins. Errors: those of Trainer::run but kRange; kRange where no pair has a finite loss.
Result<GridReport> search_grid(const TrainSettings& train, const GridSettings& settings, BlockStore& data,
                               Exchange& exchange);

}  // namespace deltawire::linear
