#include "cli/trace/trace_facts.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace deltawire::cli {

double GradientFacts::norm() const {
  return std::sqrt(squares);
}

double GradientFacts::zero_share() const {
  return values == 0 ? 0 : static_cast<double>(zeros) / static_cast<double>(values);
}

void GradientFacts::add(const GradientFacts& other) {
  gradients += other.gradients;
  values += other.values;
  zeros += other.zeros;
  not_finite += other.not_finite;
  pairs += other.pairs;
  with_significance += other.with_significance;
  largest = std::max(largest, other.largest);
  squares += other.squares;
}

GradientFacts facts_of(const TraceTensor& tensor, const Gradient& gradient) {
  GradientFacts facts;
  facts.gradients = 1;
  facts.values = tensor.elements;
  facts.pairs = tensor.pairs ? gradient.values.size() : 0;
  facts.with_significance = gradient.significance.empty() ? 0 : 1;
  facts.zeros = tensor.elements - gradient.values.size();  // elements without a key
  for (const double value : gradient.values) {
    if (!std::isfinite(value)) {
      ++facts.not_finite;
      continue;
    }
    facts.zeros += value == 0 ? 1 : 0;
    facts.largest = std::max(facts.largest, std::abs(value));
    facts.squares += value * value;
  }
  return facts;
}

GradientFacts TraceFacts::of_step(std::size_t step) const {
  GradientFacts sum;
  for (const GradientFacts& facts : of[step]) sum.add(facts);
  return sum;
}

GradientFacts TraceFacts::of_tensor(std::size_t tensor) const {
  GradientFacts sum;
  for (const std::vector<GradientFacts>& step : of) sum.add(step[tensor]);
  return sum;
}

Outcome<TraceFacts> facts_of(const Trace& trace) {
  TraceFacts facts;
  for (std::size_t i = 0; i < trace.steps.size(); ++i) {
    const auto gradients = read_step(trace, i);
    if (!gradients) return tl::unexpected<Failure>(gradients.error());
    std::vector<GradientFacts>& step = facts.of.emplace_back(trace.tensors.size());
    for (std::size_t k = 0; k < step.size(); ++k) {
      if ((*gradients)[k]) step[k] = facts_of(trace.tensors[k], *(*gradients)[k]);
    }
  }
  return facts;
}

}  // namespace deltawire::cli
