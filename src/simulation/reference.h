// What a reducer gives where nothing goes wrong.
#pragma once

#include <cstdint>
#include <vector>

#include "simulation/ledger.h"
#include "simulation/plan.h"

namespace deltawire::simulation {

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
