#include "optim/factored_step.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

namespace deltawire {
namespace {

double mean_square(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum / static_cast<double>(values.size());
}

// The second moment's means by lines, with this step's squares.
std::vector<float> moment_of_lines(const OptimizerSettings& s, const StepArrays& a, const FactoredStep& by) {
  std::vector<float> moment(by.lines.count());
  by.lines.means({a.second, a.count}, [](float value) { return value; }, moment);
  std::vector<float> decayed(s.kind == OptimizerKind::kAdam && s.weight_decay != 0 ? moment.size() : 0);
  if (!decayed.empty()) {
    const auto decay = static_cast<float>(s.weight_decay);
    by.lines.means({a.parameters, a.count}, [=](float p) { return decay * p * (decay * p); }, decayed);
  }
  const auto beta2 = static_cast<float>(s.beta2);
  const auto share = static_cast<float>(1 - s.beta2);
  for (std::size_t line = 0; line < moment.size(); ++line) {
    const float squares = std::max(0.0F, by.squares[line]) + (decayed.empty() ? 0.0F : decayed[line]);
    moment[line] = beta2 * moment[line] + share * squares;
  }
  return moment;
}

// The longest root mean square of a row's step, over the rate.
double bound_of(const OptimizerSettings& s, std::span<const float> parameters, const FactoredStep& by) {
  const double own = std::sqrt(mean_square(parameters));
  const double rate = std::max(s.learning_rate, static_cast<double>(std::numeric_limits<float>::min()));
  return std::max(by.most_rms, by.most_change * own / rate);
}

}  // namespace

void step_adam_factored(const OptimizerSettings& s, const StepArrays& a, std::uint64_t t,
                        const FactoredStep& by) {
  assert(t > 0 && a.keys == nullptr && by.squares.size() == by.lines.count());
  const bool decoupled = s.kind == OptimizerKind::kAdamW;
  const DecayedGradient decayed(decoupled ? 0 : s.weight_decay);
  const std::vector<float> moment = moment_of_lines(s, a, by);
  const std::vector<float> shape = by.lines.shape_of_rows(moment);
  if (decoupled) {
    const auto shrink = static_cast<float>(1 - s.learning_rate * s.weight_decay);
    for (std::size_t i = 0; i < a.count; ++i) a.parameters[i] *= shrink;
  }
  const double bound = bound_of(s, {a.parameters, a.count}, by);
  const double correction1 = bias_correction(s.beta1, t);
  const auto correction2 = static_cast<float>(std::sqrt(bias_correction(s.beta2, t)));
  const auto share1 = static_cast<float>(1 - s.beta1);
  const auto eps = static_cast<float>(s.eps);
  const auto longest = static_cast<float>(by.longest_step);
  const auto rate = static_cast<float>(s.learning_rate * bound);
  std::vector<float> steps(shape.size());
  by.lines.for_each_row([&](std::size_t row, std::size_t at, std::size_t elements, std::size_t place) {
    for (std::size_t k = 0; k < elements; ++k) {
      const std::size_t i = at + k;
      const float g = decayed(a.gradient[i], a.parameters[i]);
      const float m = a.first[i] + share1 * (g - a.first[i]);
      const float v = moment[row] * shape[place + k];
      a.first[i] = m;
      a.second[i] = v;
      steps[k] = m / (std::sqrt(v) / correction2 + eps);
    }
    const double length = std::sqrt(mean_square(std::span(steps).first(elements)));
    const auto unit = static_cast<float>(std::max(length, bound * correction1));
    for (std::size_t k = 0; k < elements; ++k) {
      a.parameters[at + k] -= rate * std::clamp(steps[k] / unit, -longest, longest);
    }
  });
}

}  // namespace deltawire
