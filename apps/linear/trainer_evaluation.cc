// The evaluation after a data epoch: losses, compared with those of a constant model, and the distance of the
// objective from its minimum.
#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "linear/trainer.h"

namespace deltawire::linear {
namespace {

constexpr double kNoFigure = std::numeric_limits<double>::quiet_NaN();

// Sums over training or held-out rows.
struct PartSums {
  LabelSums labels;
  double loss = 0;
  double right = 0;

  void append_to(std::vector<double>& numbers) const {
    numbers.insert(numbers.end(), {labels.rows, labels.positive, labels.sum, labels.squares, loss, right});
  }
  static PartSums from(std::span<const double> numbers) {
    return {
        .labels = {numbers[0], numbers[1], numbers[2], numbers[3]}, .loss = numbers[4], .right = numbers[5]};
  }
  static constexpr std::size_t kNumbers = 6;
};

}  // namespace

Status Trainer::evaluate(EpochReport& report) {
  const auto updated = weights_->update_results(data_);
  if (!updated) return forward_error(updated);
  report.evaluation_bytes = updated->bytes;
  const std::span<const float> results = weights_->results();
  const bool last = report.epoch == settings_.epochs;
  const bool needs_gradient = settings_.gap_is_bound() && (settings_.stop > 0 || last);
  PartSums parts[2];
  for (std::size_t i = 0; i < data_.entries().size(); ++i) {
    const auto block = data_.load(i);
    if (!block) return forward_error(block);
    const bool held_out = data_.entries()[i].held_out != 0;
    PartSums& part = parts[held_out ? 1 : 0];
    for (std::size_t row = 0; row < (*block)->rows(); ++row) {
      const double target = target_of(settings_.loss, (*block)->labels[row]);
      const double at = margin(**block, row, results, settings_.bias);
      part.labels.add(target);
      part.loss += loss_of(settings_.loss, at, target);
      part.right += (at > 0) == (target > 0) ? 1 : 0;
      if (needs_gradient && !held_out) add_slope(**block, row, slope_of(settings_.loss, at, target) / rows_);
    }
  }
  std::vector<double> numbers;
  for (const PartSums& part : parts) part.append_to(numbers);
  const auto sums = exchange_.sums(numbers);
  if (!sums) return forward_error(sums);
  const PartSums training = PartSums::from(*sums);
  const PartSums test = PartSums::from(std::span(*sums).subspan(PartSums::kNumbers));
  report.train_loss = training.loss / training.labels.rows;
  report.objective = report.train_loss + 0.5 * settings_.optimizer.weight_decay * updated->squares;
  const double constant = best_constant(settings_.loss, training.labels);
  report.constant_loss = loss_of_constant(settings_.loss, constant, test.labels);
  const bool counts_right = test.labels.rows > 0 && classifies(settings_.loss);
  const double positive = test.labels.positive / test.labels.rows;
  report.constant_accuracy = !counts_right ? kNoFigure : constant > 0 ? positive : 1 - positive;
  report.test_loss = test.labels.rows > 0 ? test.loss / test.labels.rows : kNoFigure;
  report.accuracy = counts_right ? test.right / test.labels.rows : kNoFigure;
  report.gap = kNoFigure;
  if (needs_gradient) return find_bound(report);
  if (settings_.gap_is_bound()) return {};
  std::vector<double> objectives;
  objectives.reserve(progress_.epochs.size() + 1);
  for (const EpochReport& epoch : progress_.epochs) objectives.push_back(epoch.objective);
  objectives.push_back(report.objective);
  report.gap = gap_estimate(objectives);
  return {};
}

// Bounds the gap by the gradient. Its part from the loss is in sums_, each rank's own, and removed from
// there.
Status Trainer::find_bound(EpochReport& report) {
  const double l2 = settings_.optimizer.weight_decay;
  weights_->add_results(l2, sums_);
  const auto squares = squared_norm_of_sum(sums_, exchange_);
  std::ranges::fill(sums_, 0.0);
  if (!squares) return forward_error(squares);
  report.gap = gap_bound(report.objective, *squares, l2);
  return {};
}

}  // namespace deltawire::linear
