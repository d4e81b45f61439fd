// The average of each weight over all steps, in which step t, from 1, counts t^power.
//
// Where a loss has kinks, its slopes don't get smaller near the optimum, and the weights go back and forth
// around it; their average comes to rest. With power 0 it is the mean of all steps (Polyak, Juditsky,
// "Acceleration of Stochastic Approximation by Averaging", 1992). With more the early steps, which are far
// off, count less: power 1 is Lacoste-Julien, Schmidt, Bach, "A simpler approach to obtaining an O(1/t)
// convergence rate for the projected stochastic subgradient method" (2012); the form for any power is like
// the polynomial-decay averaging of Shamir, Zhang, "Stochastic Gradient Descent for Non-smooth Optimization"
// (ICML 2013).
//
// What a weight counted is added when its steps are known: a step's by itself, and those of a weight that
// only shrank, as L2 makes it shrink under SGD, all at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "linear/checkpoint_file.h"

namespace deltawire::linear {

// Memory: 8 bytes a weight, and 16 a step. Thread rule: one thread at a time.
class StepAverage {
 public:
  StepAverage(double power, std::size_t weights) : power_(power), sums_(weights) {}

  // One more step. `shrunk`: what all steps so far have multiplied a resting weight by, as a logarithm; it
  // doesn't grow, and is 0 before the first. Only share_since looks at it.
  void note_step(double shrunk);
  void forget_steps();  // but not what was added

  // What step t, which has been noted, counts.
  double share(std::uint64_t t) const noexcept { return shares_[t - 1]; }

  // What all steps after `from` count together for a weight that was 1 then, and has only shrunk since.
  // `shrunk`: as of note_step, after step `from`.
  double share_since(std::uint32_t from, double shrunk) const noexcept;

  void add(std::uint32_t key, double share, float weight) noexcept {
    sums_[key] += share * static_cast<double>(weight);
  }

  // REQUIRES: all steps of this weight have been added. 0 before the first step.
  float of(std::uint32_t key) const noexcept {
    return total_ > 0 ? static_cast<float>(sums_[key] / total_) : 0.0F;
  }

  std::uint64_t state_bytes() const noexcept { return 8 * sums_.size(); }

  // The sums; steps are noted again by who loads. Errors: those of CheckpointReader.
  Status save(CheckpointWriter& out) const { return out.values(std::span<const double>(sums_)); }
  Status load(CheckpointReader& in) { return in.values_into(std::span(sums_)); }

 private:
  // Shares of steps are summed as they shrink, from the beginning of a block on. A block ends before they
  // have shrunk so much that a difference of such sums would be inexact.
  struct Block {
    std::uint32_t first = 1;  // of its steps
    double shrunk = 0;        // before that
  };

  double power_;
  std::vector<double> sums_;  // by weight
  double total_ = 0;
  std::vector<double> shares_;  // by step
  std::vector<double> within_;  // by step: of its block up to here, as they shrink
  std::vector<Block> blocks_;
  double shrunk_ = 0;
};

}  // namespace deltawire::linear
