#include "linear/trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/errors.h"
#include "linear/seconds_since.h"

namespace deltawire::linear {
namespace {

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

Status check_labels(Loss kind, std::uint32_t labels) {
  if (!classifies(kind)) return {};
  const std::string loss(loss_name(kind));
  if ((labels & kOtherLabel) != 0 || (labels & (kMinusOne | kZero)) == (kMinusOne | kZero)) {
    return invalid("loss " + loss +
                   " takes labels 0 and 1, or -1 and 1, and the data have others; name the positive "
                   "one (--positive LABEL), or take --loss squared");
  }
  if (std::popcount(labels) < 2) {
    return invalid("all rows have one label, and " + loss + " needs two; check the data");
  }
  return {};
}

// How many of a rank's `rows` are in the batches before number `batch`. Whole quotients first, as a product
// could wrap.
std::uint64_t rows_before(std::uint64_t rows, std::uint64_t batch, std::uint64_t batches) {
  return rows / batches * batch + rows % batches * batch / batches;
}

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

Rates default_rates(OptimizerKind kind) noexcept {
  switch (kind) {
    case OptimizerKind::kAdaGrad: return {0.7, 0.1};
    case OptimizerKind::kAdam: return {0.05, 0.2};
    default: return {0.1, 0.01};
  }
}

double margin(const RowBlock& block, std::size_t row, std::span<const float> weights) {
  double sum = 0;
  for (std::size_t i = block.first_of(row); i < block.ends[row]; ++i) {
    if (block.keys[i] < weights.size()) {
      sum += static_cast<double>(weights[block.keys[i]]) * static_cast<double>(block.values[i]);
    }
  }
  return sum;
}

double margin(const RowBlock& block, std::size_t row, std::span<const float> weights, bool bias) {
  if (!bias) return margin(block, row, weights);
  return margin(block, row, weights.first(weights.size() - 1)) + static_cast<double>(weights.back());
}

// Agrees on the dimension, the number of rows and the batches of all ranks.
Status Trainer::agree() {
  const StoreTotals& own = data_.totals();
  ASSIGN_OR_RETURN(const auto all, exchange_.gather(std::vector<double>{
                                       static_cast<double>(own.rows[0]), static_cast<double>(own.rows[1]),
                                       static_cast<double>(own.keys_end), static_cast<double>(own.labels)}));
  std::uint32_t labels = 0;
  for (std::size_t i = 0; i < all.size(); i += 4) {
    rows_ += all[i];
    rows_of_rank_.push_back(static_cast<std::uint64_t>(all[i]));
    dimension_ = std::max(dimension_, static_cast<std::uint64_t>(all[i + 2]));
    labels |= static_cast<std::uint32_t>(all[i + 3]);
  }
  if (rows_ == 0) return invalid("the data have no rows to train on; check the files");
  RETURN_IF_ERROR(check_labels(settings_.loss, labels));
  if (settings_.bias) ++dimension_;
  dimension_ = std::max<std::uint64_t>(dimension_, 1);
  const double batch = settings_.batch <= 1 ? settings_.batch * rows_ : settings_.batch;
  batches_ = static_cast<std::uint64_t>(std::ceil(rows_ / std::clamp(batch, 1.0, rows_) - 1e-9));
  return {};
}

Result<TrainedModel> Trainer::run(const TrainHooks& hooks) {
  auto model = or_no_memory("training", [&] { return run_all(hooks); });
  if (model || model.error().code != ErrorCode::kNoMemory) return model;
  return fail(ErrorCode::kNoMemory, "there is no memory to train " + std::to_string(dimension_) +
                                        " weights, up to " + (settings_.average_power ? "40" : "28") +
                                        " bytes each; --hash-bits makes them fewer");
}

Result<TrainedModel> Trainer::run_all(const TrainHooks& hooks) {
  RETURN_IF_ERROR(agree());
  ASSIGN_OR_RETURN(optimizer_, LazyOptimizer::make(settings_.optimizer, dimension_));
  if (settings_.average_power) optimizer_->keep_average(*settings_.average_power);
  weights_.assign(dimension_, 0.0F);
  sums_.assign(dimension_, 0.0);
  keys_ = KeySet(dimension_);
  gradient_.dimension = dimension_;
  TrainedModel model;
  while (progress_.epoch < static_cast<std::uint64_t>(settings_.epochs) && !model.converged) {
    RETURN_IF_ERROR(run_epoch(hooks));
    EpochReport report = progress_.report;
    RETURN_IF_ERROR(evaluate(report));
    if (!std::isfinite(report.objective)) {
      return fail(ErrorCode::kRange, "the loss is not finite after data epoch " +
                                         std::to_string(report.epoch) + "; lower the learning rate (--lr)");
    }
    model.converged = settings_.stop > 0 && report.gap <= settings_.stop;
    progress_.epochs.push_back(report);
    hooks.epoch(report);
    progress_ = {.epoch = progress_.epoch + 1, .report = {}, .epochs = std::move(progress_.epochs)};
  }
  model.state_bytes = 4 * weights_.size() + optimizer_->state_bytes();
  model.weights = std::move(results());
  model.epochs = std::move(progress_.epochs);
  return model;
}

Status Trainer::run_epoch(const TrainHooks& hooks) {
  EpochReport& report = progress_.report;
  report.epoch = static_cast<int>(progress_.epoch) + 1;
  const double rate =
      settings_.optimizer.learning_rate / (1 + static_cast<double>(progress_.epoch) * settings_.rate_decay);
  RETURN_IF_ERROR(optimizer_->set_learning_rate(rate));
  const auto rank = static_cast<std::size_t>(exchange_.rank());
  EpochRows rows(data_, settings_.seed + 0x10001 * rank, progress_.epoch);
  while (progress_.batch < batches_) {
    if (hooks.interrupted()) return fail(ErrorCode::kAborted, "interrupted: no model is written");
    const auto begin = Clock::now();
    RETURN_IF_ERROR(step(rows));
    report.seconds += seconds_since(begin);
  }
  return sum_up();
}

Status Trainer::step(EpochRows& order) {
  const auto rows_of = [&](std::uint64_t rows) {
    return rows_before(rows, progress_.batch + 1, batches_) - rows_before(rows, progress_.batch, batches_);
  };
  std::uint64_t of_all = 0;
  for (const std::uint64_t rows : rows_of_rank_) of_all += rows_of(rows);
  // The exchange averages over ranks, however many rows each had.
  const double scale =
      static_cast<double>(exchange_.world()) / static_cast<double>(std::max<std::uint64_t>(1, of_all));
  EpochReport& report = progress_.report;
  const std::uint64_t own = rows_of(rows_of_rank_[static_cast<std::size_t>(exchange_.rank())]);
  const auto begin = Clock::now();
  const double updates = report.update_seconds;
  RETURN_IF_ERROR(add_rows(order, own, scale));
  report.compute_seconds += seconds_since(begin) - (report.update_seconds - updates);
  progress_.plain += 8 * gradient_.keys.size() * static_cast<std::uint64_t>(exchange_.world() - 1);
  ASSIGN_OR_RETURN(const auto sent, exchange_.average(gradient_));
  report.encode_seconds += sent.encode_seconds;
  report.exchange_seconds += sent.exchange_seconds;
  report.decode_seconds += sent.decode_seconds;
  progress_.bytes += sent.bytes_sent;
  const auto updating = Clock::now();
  optimizer_->step(gradient_, weights_);
  report.update_seconds += seconds_since(updating);
  ++progress_.batch;
  return {};
}

// Combines this rank's figures of the data epoch with those of all ranks.
Status Trainer::sum_up() {
  EpochReport& report = progress_.report;
  // The whole is a mean as its parts are: of one rank alone it may be less than theirs, since ranks wait for
  // each other at different places.
  std::vector parts{&EpochReport::seconds};
  for (const EpochFigure& time : std::span(kEpochFigures).last(kEpochTimes)) parts.push_back(time.member);
  std::vector<double> numbers{static_cast<double>(progress_.bytes), static_cast<double>(progress_.plain),
                              static_cast<double>(rows_of_rank_[static_cast<std::size_t>(exchange_.rank())])};
  for (const double EpochReport::* part : parts) numbers.push_back(report.*part);
  ASSIGN_OR_RETURN(const auto sums, exchange_.sums(numbers));
  const double world = exchange_.world();
  for (std::size_t i = 0; i < parts.size(); ++i) report.*parts[i] = sums[3 + i] / world;
  report.bytes_per_step = sums[0] / world / static_cast<double>(batches_);
  report.bytes_sent = sums[0] / world;
  report.plain_ratio = sums[0] > 0 ? sums[1] / sums[0] : kNotKnown;
  report.rows_per_second = sums[2] / report.seconds;
  if (!progress_.epochs.empty()) {
    report.seconds += progress_.epochs.back().seconds;
    report.bytes_sent += progress_.epochs.back().bytes_sent;
  }
  return {};
}

// Puts the gradient of the next `count` rows' loss, times `scale`, into gradient_.
Status Trainer::add_rows(EpochRows& order, std::uint64_t count, double scale) {
  double& update_seconds = progress_.report.update_seconds;
  const auto bring_up = [&] {
    const auto begin = Clock::now();
    optimizer_->bring_up(fresh_, weights_);
    update_seconds += seconds_since(begin);
  };
  if (settings_.bias && count > 0) {
    keys_.add(bias_key());
    fresh_.assign(1, bias_key());
    bring_up();
  }
  while (count > 0) {
    const auto taken = order.take(count, [&](const RowBlock& block, std::span<const std::uint32_t> rows) {
      fresh_.clear();
      keys_.add_rows(block, rows, fresh_);
      bring_up();
      add_gradient(block, rows, scale);
    });
    if (!taken) return forward_error(taken);
    if (*taken == 0) break;
    count -= *taken;
  }
  collect_gradient();
  return {};
}

void Trainer::add_gradient(const RowBlock& block, std::span<const std::uint32_t> rows, double scale) {
  for (const std::uint32_t row : rows) {
    const double slope = scale * slope_of(settings_.loss, margin(block, row, weights_, settings_.bias),
                                          target_of(settings_.loss, block.labels[row]));
    if (slope != 0) add_slope(block, row, slope);
  }
}

// Adds a row's part of a gradient, with the slope of its loss.
void Trainer::add_slope(const RowBlock& block, std::size_t row, double slope) {
  for (std::size_t i = block.first_of(row); i < block.ends[row]; ++i) {
    sums_[block.keys[i]] += slope * static_cast<double>(block.values[i]);
  }
  if (settings_.bias) sums_[bias_key()] += slope;
}

// Moves the sums at the batch's keys into gradient_, in the order of keys.
void Trainer::collect_gradient() {
  gradient_.keys.clear();
  gradient_.values.clear();
  keys_.remove_all([&](std::uint32_t key) {
    const double sum = std::exchange(sums_[key], 0.0);
    if (sum == 0) return;
    gradient_.keys.push_back(key);
    gradient_.values.push_back(static_cast<float>(sum));
  });
}

// Brings all results up to date; returns the sum of their squares.
double Trainer::update_results() {
  const double squares = optimizer_->squares_of_results(weights_);
  if (settings_.average_power) averages_.resize(dimension_);
  for (std::size_t key = 0; key < averages_.size(); ++key) {
    averages_[key] = optimizer_->result(static_cast<std::uint32_t>(key), weights_);
  }
  return squares;
}

// Losses, compared with those of a constant model, and the distance of the objective from its minimum.
Status Trainer::evaluate(EpochReport& report) {
  const double squares = update_results();
  const bool last = report.epoch == settings_.epochs;
  const bool needs_gradient = settings_.gap_is_bound() && (settings_.stop > 0 || last);
  PartSums parts[2];
  for (std::size_t i = 0; i < data_.entries().size(); ++i) {
    ASSIGN_OR_RETURN(const auto block, data_.load(i));
    const bool held_out = data_.entries()[i].held_out != 0;
    PartSums& part = parts[held_out ? 1 : 0];
    for (std::size_t row = 0; row < block->rows(); ++row) {
      const double target = target_of(settings_.loss, block->labels[row]);
      const double at = margin(*block, row, results(), settings_.bias);
      part.labels.add(target);
      part.loss += loss_of(settings_.loss, at, target);
      part.right += (at > 0) == (target > 0) ? 1 : 0;
      if (needs_gradient && !held_out) add_slope(*block, row, slope_of(settings_.loss, at, target) / rows_);
    }
  }
  std::vector<double> numbers;
  for (const PartSums& part : parts) part.append_to(numbers);
  ASSIGN_OR_RETURN(const auto sums, exchange_.sums(numbers));
  const PartSums training = PartSums::from(sums);
  const PartSums test = PartSums::from(std::span(sums).subspan(PartSums::kNumbers));
  report.train_loss = training.loss / training.labels.rows;
  report.objective = report.train_loss + 0.5 * settings_.optimizer.weight_decay * squares;
  const double constant = best_constant(settings_.loss, training.labels);
  report.constant_loss = loss_of_constant(settings_.loss, constant, test.labels);
  const bool counts_right = test.labels.rows > 0 && classifies(settings_.loss);
  const double positive = test.labels.positive / test.labels.rows;
  report.constant_accuracy = !counts_right ? kNotKnown : constant > 0 ? positive : 1 - positive;
  report.test_loss = test.labels.rows > 0 ? test.loss / test.labels.rows : kNotKnown;
  report.accuracy = counts_right ? test.right / test.labels.rows : kNotKnown;
  report.gap = kNotKnown;
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
  if (exchange_.rank() == 0) {
    for (std::size_t key = 0; key < sums_.size(); ++key) {
      sums_[key] += l2 * static_cast<double>(results()[key]);
    }
  }
  const auto squares = squared_norm_of_sum(sums_, exchange_);
  std::ranges::fill(sums_, 0.0);
  if (!squares) return forward_error(squares);
  report.gap = gap_bound(report.objective, *squares, l2);
  return {};
}

}  // namespace deltawire::linear
