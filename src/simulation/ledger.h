// Where a rank's gradients have gone: they are in the means, or wait in a residual.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "deltawire/reducer.h"
#include "simulation/plan.h"

namespace deltawire::simulation {

// By tensor and element.
using Gradient = std::vector<std::vector<float>>;
using Sums = std::vector<std::vector<double>>;

// The gradient of a rank in a step: a few tensors, those at the end too small to be compressed. `longest`:
// elements of the first.
Gradient gradient(int rank, std::uint64_t step, std::size_t longest = 1500);
// As a reducer takes them.
std::vector<Named> named(Gradient& tensors);
// Those of one of so many buckets.
inline std::span<const Named> of_bucket(std::span<const Named> all, std::size_t bucket, std::size_t buckets) {
  const std::size_t first = all.size() * bucket / buckets;
  return all.subspan(first, all.size() * (bucket + 1) / buckets - first);
}

struct Ledger {
  Sums given;    // all that the program has passed to the reducer, and that the reducer has kept
  Sums means;    // all that it got back
  Sums waiting;  // what the residuals hold, in the unit of the mean; empty if that is not known
};

void add(Sums& sums, const Gradient& tensors);
// The residuals in a reducer's saved state. Empty for `ring`, whose parts only its plan knows.
Sums waiting_in(const std::string& spec, Bytes state, int world);
// The largest difference between gradients in, and means out with residuals; gradients are below 0.125.
double imbalance(const std::vector<const Ledger*>& ledgers);

// What a reducer gives where nothing goes wrong.
class Reference {
 public:
  struct AfterStep {
    Gradient means;
    std::vector<std::vector<std::byte>> states;  // Reducer::save, by rank
  };

  // Of the plan's reducer and world. Formed once, by an undisturbed simulation: no other may be under way the
  // first time.
  static const Reference& of(const Plan& plan);

  const AfterStep& after(std::uint64_t step) const { return steps_[static_cast<std::size_t>(step)]; }
  // What its means and residuals lack of the gradients.
  double imbalance() const noexcept { return imbalance_; }

 private:
  explicit Reference(const Plan& plan);

  std::vector<AfterStep> steps_;
  double imbalance_ = 0;
};

}  // namespace deltawire::simulation
