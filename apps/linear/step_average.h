// The average of each weight over all steps, where step t, from 1, has the weight t^power.
//
// Near the optimum of a loss with kinks, slopes do not get smaller and the weights oscillate; their average
// converges. Power 0 is the mean of all steps (Polyak, Juditsky, "Acceleration of Stochastic Approximation by
// Averaging", 1992). With larger powers the early steps, which are far off, count less: power 1 is
// Lacoste-Julien, Schmidt, Bach, "A simpler approach to obtaining an O(1/t) convergence rate for the
// projected stochastic subgradient method" (2012); the form for any power is like the polynomial-decay
// averaging of Shamir, Zhang, "Stochastic Gradient Descent for Non-smooth Optimization" (ICML 2013).
//
// A weight's steps are added one by one, or, if it only shrank by L2 under SGD, all at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "linear/checkpoint_file.h"

namespace deltawire::linear {

// Memory: 8 bytes per weight and 16 per step. Thread rule: one thread at a time.
class StepAverage {
 public:
  StepAverage(double power, std::size_t weights) : power_(power), sums_(weights) {}

  // Starts the next step. `shrunk`: the logarithm of the factor by which all steps so far have multiplied a
  // weight without gradients; it never grows, and is 0 before the first step. Used by weight_since only.
  void note_step(double shrunk);
  void forget_steps();  // keeps the sums

  // The weight of step t, which has been noted.
  double weight(std::uint64_t t) const noexcept { return step_weights_[t - 1]; }

  // The sum that all steps after `from` add for a weight that was 1 then and has only shrunk since. `shrunk`:
  // that of note_step for step `from`.
  double weight_since(std::uint32_t from, double shrunk) const noexcept;

  void add(std::uint32_t key, double step_weight, float value) noexcept {
    sums_[key] += step_weight * static_cast<double>(value);
  }

  // REQUIRES: all steps of this weight have been added. 0 before the first step.
  float of(std::uint32_t key) const noexcept {
    return total_ > 0 ? static_cast<float>(sums_[key] / total_) : 0.0F;
  }

  std::uint64_t state_bytes() const noexcept { return 8 * sums_.size(); }

  // Saves the sums; after load() the caller notes the steps again. Errors: those of CheckpointReader.
  Status save(CheckpointWriter& out) const { return out.values(std::span<const double>(sums_)); }
  Status load(CheckpointReader& in) { return in.values_into(std::span(sums_)); }

 private:
  // Weights of steps are summed within blocks, scaled as they shrink. A block ends before that makes
  // differences of such sums inexact.
  struct Block {
    std::uint32_t first = 1;  // step of the block
    double shrunk = 0;        // before it
  };

  double power_;
  std::vector<double> sums_;  // by weight
  double total_ = 0;
  std::vector<double> step_weights_;  // by step
  std::vector<double> within_;        // by step: the sum within its block so far
  std::vector<Block> blocks_;
  double shrunk_ = 0;
};

}  // namespace deltawire::linear
