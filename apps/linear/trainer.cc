#include "linear/trainer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "base/no_memory.h"
#include "linear/seconds_since.h"

namespace deltawire::linear {
namespace {

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

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

double Trainer::margin_of(std::span<const float> weights, const RowBlock& block, std::size_t row) const {
  const double own = margin(block, row, settings_.bias ? weights.first(weights.size() - 1) : weights);
  return settings_.bias ? own + static_cast<double>(weights.back()) : own;
}

Status Trainer::check_labels(std::uint32_t labels) const {
  if (!classifies(settings_.loss)) return {};
  const std::string loss(loss_name(settings_.loss));
  if ((labels & kOtherLabel) != 0 || (labels & (kMinusOne | kZero)) == (kMinusOne | kZero)) {
    return fail(ErrorCode::kInvalidArgument,
                "loss " + loss +
                    " takes labels 0 and 1, or -1 and 1, and the data have others; name the positive "
                    "one (--positive LABEL), or take --loss squared");
  }
  if (std::popcount(labels) < 2) {
    return fail(ErrorCode::kInvalidArgument,
                "all rows have one label, and " + loss + " needs two; check the data");
  }
  return {};
}

// What all ranks must know of all rows.
Status Trainer::agree() {
  const StoreTotals& own = data_.totals();
  const auto all = exchange_.gather(
      std::vector<double>{static_cast<double>(own.rows[0]), static_cast<double>(own.rows[1]),
                          static_cast<double>(own.keys_end), static_cast<double>(own.labels)});
  if (!all) return forward_error(all);
  std::uint32_t labels = 0;
  for (std::size_t i = 0; i < all->size(); i += 4) {
    rows_ += (*all)[i];
    rows_of_rank_.push_back(static_cast<std::uint64_t>((*all)[i]));
    dimension_ = std::max(dimension_, static_cast<std::uint64_t>((*all)[i + 2]));
    labels |= static_cast<std::uint32_t>((*all)[i + 3]);
  }
  if (rows_ == 0)
    return fail(ErrorCode::kInvalidArgument, "the data have no rows to train on; check the files");
  if (Status fits = check_labels(labels); !fits) return fits;
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

Status Trainer::make_optimizer() {
  if (exchange_.owners()) {
    auto owned = OwnedWeights::make(settings_.optimizer, dimension_, exchange_);
    if (!owned) return forward_error(owned);
    owned_ = *std::move(owned);
    if (settings_.average_power) owned_->keep_average(*settings_.average_power);
    return {};
  }
  auto optimizer = LazyOptimizer::make(settings_.optimizer, dimension_);
  if (!optimizer) return forward_error(optimizer);
  optimizer_ = *std::move(optimizer);
  if (settings_.average_power) optimizer_->keep_average(*settings_.average_power);
  return {};
}

// What the rank with the largest share keeps to step weights.
Result<double> Trainer::state_bytes() {
  const std::uint64_t own = owned_ ? owned_->state_bytes() : 4 * weights_.size() + optimizer_->state_bytes();
  const auto all = exchange_.gather(std::vector<double>{static_cast<double>(own)});
  if (!all) return forward_error(all);
  return std::ranges::max(*all);
}

Result<TrainedModel> Trainer::run_all(const TrainHooks& hooks) {
  if (Status agreed = agree(); !agreed) return forward_error(agreed);
  if (Status made = make_optimizer(); !made) return forward_error(made);
  weights_.assign(dimension_, 0.0F);
  sums_.assign(dimension_, 0.0);
  seen_.assign(ceil_div(dimension_, 64), 0);
  gradient_.dimension = dimension_;
  if (hooks.checkpoints != nullptr && hooks.checkpoints->resumes()) {
    if (Status resumed = resume(*hooks.checkpoints); !resumed) return forward_error(resumed);
  }
  TrainedModel model;
  std::vector<EpochReport>& epochs = progress_.epochs;
  while (progress_.epoch < static_cast<std::uint64_t>(settings_.epochs) && !model.converged) {
    if (Status done = run_epoch(hooks); !done) return forward_error(done);
    EpochReport report = progress_.report;
    if (Status done = evaluate(report); !done) return forward_error(done);
    if (!std::isfinite(report.objective)) {
      return fail(ErrorCode::kRange, "the loss is not finite after data epoch " +
                                         std::to_string(report.epoch) + "; lower the learning rate (--lr)");
    }
    model.converged = settings_.stop > 0 && report.gap <= settings_.stop;
    epochs.push_back(report);
    hooks.epoch(report);
    progress_ = {.epoch = progress_.epoch + 1, .report = {}, .epochs = std::move(epochs)};
  }
  const auto state = state_bytes();
  if (!state) return forward_error(state);
  model.state_bytes = *state;
  if (owned_) {
    if (Status pulled = pull_model(); !pulled) return forward_error(pulled);
  }
  model.epochs = std::move(epochs);
  model.weights = std::move(averages_.empty() ? weights_ : averages_);
  return model;
}

Status Trainer::run_epoch(const TrainHooks& hooks) {
  EpochReport& report = progress_.report;
  report.epoch = static_cast<int>(progress_.epoch) + 1;
  const double rate =
      settings_.optimizer.learning_rate / (1 + static_cast<double>(progress_.epoch) * settings_.rate_decay);
  if (Status set = owned_ ? owned_->set_learning_rate(rate) : optimizer_->set_learning_rate(rate); !set) {
    return set;
  }
  const auto rank = static_cast<std::size_t>(exchange_.rank());
  EpochRows rows(data_, settings_.seed + 0x10001 * rank, progress_.epoch);
  if (Status there = rows.skip(rows_before(rows_of_rank_[rank], progress_.batch)); !there) return there;
  Order order{rows, rows};
  while (progress_.batch < batches_) {
    if (hooks.interrupted()) return fail(ErrorCode::kAborted, "interrupted: no model is written");
    const auto begin = Clock::now();
    if (Status stepped = step(order); !stepped) return stepped;
    report.seconds += seconds_since(begin);
    if (hooks.checkpoints == nullptr) continue;
    const std::uint64_t every = hooks.checkpoints->every() > 0 ? hooks.checkpoints->every() : batches_;
    if (exchange_.steps() % every != 0) continue;
    const auto saving = Clock::now();
    if (Status saved = save(*hooks.checkpoints); !saved) return saved;
    report.checkpoint_seconds += seconds_since(saving);
  }
  return sum_up();
}

// Of a rank's `rows`, those of the batches before this one. Whole quotients first, as a product could wrap.
std::uint64_t Trainer::rows_before(std::uint64_t rows, std::uint64_t batch) const {
  return rows / batches_ * batch + rows % batches_ * batch / batches_;
}

Status Trainer::step(Order& order) {
  const auto rows_of = [&](std::uint64_t rows) {
    return rows_before(rows, progress_.batch + 1) - rows_before(rows, progress_.batch);
  };
  std::uint64_t of_all = 0;
  for (const std::uint64_t rows : rows_of_rank_) of_all += rows_of(rows);
  // The exchange makes the mean over ranks, whatever number of rows each had.
  const double scale =
      static_cast<double>(exchange_.world()) / static_cast<double>(std::max<std::uint64_t>(1, of_all));
  EpochReport& report = progress_.report;
  const std::uint64_t own = rows_of(rows_of_rank_[static_cast<std::size_t>(exchange_.rank())]);
  if (owned_) {
    if (Status pulled = pull_batch(order.keys, own); !pulled) return pulled;
  }
  const auto begin = Clock::now();
  const double updates = report.update_seconds;
  if (Status taken = take_rows(order.gradients, own, scale); !taken) return taken;
  report.compute_seconds += seconds_since(begin) - (report.update_seconds - updates);
  progress_.plain += 8 * gradient_.keys.size() * static_cast<std::uint64_t>(exchange_.world() - 1);
  if (Status stepped = owned_ ? push_gradient() : average_and_step(); !stepped) return stepped;
  ++progress_.batch;
  return {};
}

Status Trainer::average_and_step() {
  EpochReport& report = progress_.report;
  const auto cost = exchange_.average(gradient_);
  if (!cost) return forward_error(cost);
  const auto updating = Clock::now();
  optimizer_->step(gradient_, weights_);
  report.update_seconds += seconds_since(updating);
  report.encode_seconds += cost->encode_seconds;
  report.exchange_seconds += cost->exchange_seconds;
  report.decode_seconds += cost->decode_seconds;
  progress_.bytes += cost->bytes_sent;
  return {};
}

// From what this rank has counted in the data epoch to what all have.
Status Trainer::sum_up() {
  EpochReport& report = progress_.report;
  const std::array parts{&EpochReport::compute_seconds,  &EpochReport::encode_seconds,
                         &EpochReport::exchange_seconds, &EpochReport::decode_seconds,
                         &EpochReport::update_seconds,   &EpochReport::checkpoint_seconds};
  std::vector<double> numbers{static_cast<double>(progress_.bytes), static_cast<double>(progress_.plain),
                              static_cast<double>(rows_of_rank_[static_cast<std::size_t>(exchange_.rank())]),
                              static_cast<double>(progress_.weights)};
  for (double EpochReport::* part : parts) numbers.push_back(report.*part);
  const auto sums = exchange_.sums(numbers);
  if (!sums) return forward_error(sums);
  const double world = exchange_.world();
  for (std::size_t i = 0; i < parts.size(); ++i) report.*parts[i] = (*sums)[4 + i] / world;
  report.bytes_per_step = (*sums)[0] / world / static_cast<double>(batches_);
  report.weights_bytes_per_step = (*sums)[3] / world / static_cast<double>(batches_);
  report.bytes_sent = (*sums)[0] / world;
  report.plain_ratio = (*sums)[0] > 0 ? (*sums)[1] / (*sums)[0] : kNotKnown;
  report.rows_per_second = (*sums)[2] / report.seconds;
  report.seconds += report.checkpoint_seconds;
  if (!progress_.epochs.empty()) {
    report.seconds += progress_.epochs.back().seconds;
    report.bytes_sent += progress_.epochs.back().bytes_sent;
  }
  return {};
}

// The gradient of the next `count` rows' loss, times `scale`, in gradient_.
Status Trainer::take_rows(EpochRows& order, std::uint64_t count, double scale) {
  if (settings_.bias && count > 0) {
    const std::uint32_t key = mark_bias();
    bring_up(std::span(&key, 1));
  }
  while (count > 0) {
    const auto taken = order.take(count, [&](const RowBlock& block, std::span<const std::uint32_t> rows) {
      mark_keys(block, rows);
      bring_up(fresh_);
      add_gradient(block, rows, scale);
    });
    if (!taken) return forward_error(taken);
    if (*taken == 0) break;
    count -= *taken;
  }
  collect_gradient();
  return {};
}

std::uint32_t Trainer::mark_bias() {
  const auto key = static_cast<std::uint32_t>(dimension_ - 1);
  seen_[key / 64] |= std::uint64_t{1} << (key % 64);
  return key;
}

// A view has been brought up by its owners.
void Trainer::bring_up(std::span<const std::uint32_t> keys) {
  if (owned_) return;
  const auto begin = Clock::now();
  optimizer_->bring_up(keys, weights_);
  progress_.report.update_seconds += seconds_since(begin);
}

void Trainer::mark_keys(const RowBlock& block, std::span<const std::uint32_t> rows) {
  fresh_.clear();
  for (const std::uint32_t row : rows) {
    for (std::size_t i = block.first_of(row); i < block.ends[row]; ++i) {
      const std::uint32_t key = block.keys[i];
      const std::uint64_t bit = std::uint64_t{1} << (key % 64);
      if ((seen_[key / 64] & bit) != 0) continue;
      seen_[key / 64] |= bit;
      fresh_.push_back(key);
    }
  }
}

void Trainer::add_gradient(const RowBlock& block, std::span<const std::uint32_t> rows, double scale) {
  for (const std::uint32_t row : rows) {
    const double slope = scale * slope_of(settings_.loss, margin_of(weights_, block, row),
                                          target_of(settings_.loss, block.labels[row]));
    if (slope != 0) add_slope(block, row, slope);
  }
}

// A row's share of a gradient, by the slope of its loss.
void Trainer::add_slope(const RowBlock& block, std::size_t row, double slope) {
  for (std::size_t i = block.first_of(row); i < block.ends[row]; ++i) {
    sums_[block.keys[i]] += slope * static_cast<double>(block.values[i]);
  }
  if (settings_.bias) sums_[dimension_ - 1] += slope;
}

// The sums in the order of keys; and nothing is left behind in them.
void Trainer::collect_gradient() {
  gradient_.keys.clear();
  gradient_.values.clear();
  for (std::size_t word = 0; word < seen_.size(); ++word) {
    for (std::uint64_t bits = std::exchange(seen_[word], 0); bits != 0; bits &= bits - 1) {
      const auto key = static_cast<std::uint32_t>(64 * word + static_cast<unsigned>(std::countr_zero(bits)));
      const double sum = std::exchange(sums_[key], 0.0);
      if (sum == 0) continue;
      gradient_.keys.push_back(key);
      gradient_.values.push_back(static_cast<float>(sum));
    }
  }
}

}  // namespace deltawire::linear
