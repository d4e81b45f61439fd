// How far training is from the minimum of its objective, and the loss of a constant model.
#pragma once

#include <span>

#include "deltawire/result.h"
#include "linear/exchange.h"
#include "linear/objective.h"

namespace deltawire::linear {

// Whether the gradient bounds the distance to the minimum: not for the hinge, whose slope jumps, nor without
// L2, which makes the objective strongly convex.
bool bounds_gap(Loss loss, double l2) noexcept;

// An upper bound of objective / minimum - 1 of an objective that is convex and l2-strongly convex: it is
// above its minimum by at most |gradient|^2 / (2 l2) (Boyd and Vandenberghe, "Convex Optimization", 9.9;
// it is also the duality gap for the dual point that the slopes make). Infinity if that is not less than the
// objective.
double gap_bound(double objective, double squared_gradient, double l2) noexcept;

// An estimate of objective / minimum - 1 without a bound: the change over the second half of all data epochs,
// which is the remaining distance if that shrinks as 1 / epochs. `objectives`: those of all data epochs; NaN
// for fewer than 4.
double gap_estimate(std::span<const double> objectives) noexcept;

// |v|^2 of the sum v of all ranks' vectors, all of one size. Exact with one rank, or for up to 2,048 numbers.
// Otherwise an estimate with a standard deviation of 3.1 %, times 1.1 so that it is rarely too low; each rank
// sends 16 KiB to each other rank. The numbers are added, with signs from a hash of the key, in 2,048 buckets
// (Charikar, Chen, Farach-Colton, "Finding frequent items in data streams", 2002; Thorup and Zhang,
// "Tabulation based 4-universal hashing with applications to second moment estimation", 2004). Collective,
// between steps. Errors: those of Exchange::sums.
Result<double> squared_norm_of_sum(std::span<const double> own, Exchange& exchange);

// Sums over the labels of some rows, enough to find the best constant model.
struct LabelSums {
  double rows = 0;
  double positive = 0;  // targets above 0
  double sum = 0;       // of targets
  double squares = 0;

  void add(double target) noexcept;
};

// The constant margin with the least mean loss on rows with these labels.
double best_constant(Loss loss, const LabelSums& labels) noexcept;

// The mean loss of rows with these labels if every margin is `margin`. NaN without rows.
double loss_of_constant(Loss loss, double margin, const LabelSums& labels) noexcept;

}  // namespace deltawire::linear
