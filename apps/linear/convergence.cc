#include "linear/convergence.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/errors.h"
#include "base/random.h"

namespace deltawire::linear {
namespace {

constexpr std::size_t kBuckets = 2048;
constexpr double kSlack = 1.1;  // three standard deviations, sqrt(2 / kBuckets) each
constexpr std::uint64_t kSketchSeed = 0x5CE7C4;

double squared_norm(std::span<const double> numbers) {
  return std::inner_product(numbers.begin(), numbers.end(), numbers.begin(), 0.0);
}

}  // namespace

bool bounds_gap(Loss loss, double l2) noexcept {
  return loss != Loss::kHinge && l2 > 0;
}

double gap_bound(double objective, double squared_gradient, double l2) noexcept {
  const double above = squared_gradient / (2 * l2);
  return above < objective ? above / (objective - above) : std::numeric_limits<double>::infinity();
}

double gap_estimate(std::span<const double> objectives) noexcept {
  if (objectives.size() < 4) return std::numeric_limits<double>::quiet_NaN();
  const double last = objectives.back();
  return last == 0 ? 0 : std::fabs(objectives[objectives.size() / 2 - 1] - last) / std::fabs(last);
}

Result<double> squared_norm_of_sum(std::span<const double> own, Exchange& exchange) {
  const bool hashed = own.size() > kBuckets;
  if (exchange.world() == 1) return squared_norm(own);
  std::vector<double> buckets(std::min(own.size(), kBuckets), 0.0);
  const CounterRng random(kSketchSeed);
  for (std::size_t key = 0; key < own.size(); ++key) {
    if (own[key] == 0) continue;
    const std::uint64_t draw = hashed ? random.at(key) : 0;
    const std::size_t bucket = hashed ? (draw >> 1) % kBuckets : key;
    buckets[bucket] += (draw & 1) != 0 ? -own[key] : own[key];
  }
  ASSIGN_OR_RETURN(const auto sums, exchange.sums(buckets));
  return hashed ? kSlack * squared_norm(sums) : squared_norm(sums);
}

void LabelSums::add(double target) noexcept {
  ++rows;
  positive += target > 0 ? 1 : 0;
  sum += target;
  squares += target * target;
}

double best_constant(Loss loss, const LabelSums& labels) noexcept {
  const double mean = labels.rows > 0 ? labels.sum / labels.rows : 0;
  switch (loss) {
    // One extra row of each label, since with a single label it would be infinite.
    case Loss::kLogistic: return std::log((labels.positive + 1) / (labels.rows - labels.positive + 1));
    case Loss::kHinge: return mean >= 0 ? 1 : -1;
    case Loss::kSquared:
    case Loss::kSquaredHinge: return mean;
  }
  return 0;
}

double loss_of_constant(Loss loss, double margin, const LabelSums& labels) noexcept {
  if (labels.rows == 0) return std::numeric_limits<double>::quiet_NaN();
  if (classifies(loss)) {
    const double positive = labels.positive / labels.rows;
    return positive * loss_of(loss, margin, 1) + (1 - positive) * loss_of(loss, margin, -1);
  }
  return 0.5 * (margin * margin + (labels.squares - 2 * margin * labels.sum) / labels.rows);
}

}  // namespace deltawire::linear
