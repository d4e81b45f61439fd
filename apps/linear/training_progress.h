// How far a training has come: part of a checkpoint.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "deltawire/reducer.h"
#include "linear/checkpoint_file.h"

namespace deltawire::linear {

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

  // Times of this data epoch, means over ranks: the five parts of the paper's table 4, and checkpoints.
  double compute_seconds = 0;  // gradients, and reading rows
  double encode_seconds = 0;
  double exchange_seconds = 0;  // sending, and waiting for others
  double decode_seconds = 0;
  double update_seconds = 0;  // weights and moments, with missed steps
  double checkpoint_seconds = 0;
};

struct EpochFigure {
  const char* name = nullptr;  // in reports
  double EpochReport::* member = nullptr;
};

// In the order of checkpoints; the times of a data epoch are the last.
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
    EpochFigure{"checkpoint_seconds", &EpochReport::checkpoint_seconds},
};
inline constexpr std::size_t kEpochTimes = 6;

// Between steps.
struct TrainingProgress {
  std::uint64_t epoch = 0;  // data epochs done
  std::uint64_t batch = 0;  // and steps of the present one
  std::uint64_t bytes = 0;  // in the present one: sent by this rank,
  std::uint64_t plain = 0;  // and what plain pairs would have taken
  EpochReport report;       // the present one's, of this rank so far
  std::vector<EpochReport> epochs;

  void add(const Report& sent);

  // As arrays of a checkpoint. Errors of load: those of CheckpointReader; kCorrupt if the numbers do not fit
  // the checkpoint's step, for `batches` steps per data epoch.
  Status save(CheckpointWriter& out) const;
  Status load(CheckpointReader& in, std::uint64_t batches);
};

}  // namespace deltawire::linear
