// What `deltawire trace info` says of a trace.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/outcome.h"
#include "cli/trace/trace.h"
#include "cli/trace/trace_reader.h"

namespace deltawire::cli {

// Of one tensor in one step, or of several together. Of finite values but for `not_finite`.
struct GradientFacts {
  std::uint64_t gradients = 0;          // tensors times steps
  std::uint64_t values = 0;             // elements, given or not
  std::uint64_t zeros = 0;              // of them
  std::uint64_t not_finite = 0;         // NaN or Inf
  std::uint64_t pairs = 0;              // given with keys
  std::uint64_t with_significance = 0;  // gradients that have it
  double largest = 0;
  double squares = 0;  // sum

  double norm() const;        // L2
  double zero_share() const;  // 0 without values
  void add(const GradientFacts& other);
};

GradientFacts facts_of(const TraceTensor& tensor, const Gradient& gradient);

struct TraceFacts {
  std::vector<std::vector<GradientFacts>> of;  // [step][tensor]; gradients = 0: none

  GradientFacts of_step(std::size_t step) const;
  GradientFacts of_tensor(std::size_t tensor) const;  // in all steps
};

// Reads all files, a step at a time.
Outcome<TraceFacts> facts_of(const Trace& trace);

}  // namespace deltawire::cli
