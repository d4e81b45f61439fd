#include "linear/trainer.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/checked.h"
#include "linear/epoch_rows.h"
#include "linear/seconds_since.h"

namespace deltawire::linear {
namespace {

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

}  // namespace

double margin(const RowBlock& block, std::size_t row, std::span<const float> weights) {
  double sum = 0;
  for (std::size_t i = block.first_of(row); i < block.ends[row]; ++i) {
    if (block.keys[i] < weights.size()) {
      sum += static_cast<double>(weights[block.keys[i]]) * static_cast<double>(block.values[i]);
    }
  }
  return sum;
}

struct Trainer::Epoch {
  EpochRows rows;
  std::uint64_t batch = 0;
};

double Trainer::margin_of(const RowBlock& block, std::size_t row) const {
  const std::span<const float> weights(weights_);
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
  double rows = 0;
  std::uint32_t labels = 0;
  for (std::size_t i = 0; i < all->size(); i += 4) {
    rows += (*all)[i];
    rows_of_rank_.push_back(static_cast<std::uint64_t>((*all)[i]));
    dimension_ = std::max(dimension_, static_cast<std::uint64_t>((*all)[i + 2]));
    labels |= static_cast<std::uint32_t>((*all)[i + 3]);
  }
  if (rows == 0)
    return fail(ErrorCode::kInvalidArgument, "the data have no rows to train on; check the files");
  if (Status fits = check_labels(labels); !fits) return fits;
  if (settings_.bias) ++dimension_;
  dimension_ = std::max<std::uint64_t>(dimension_, 1);
  const double batch = settings_.batch <= 1 ? settings_.batch * rows : settings_.batch;
  batches_ = static_cast<std::uint64_t>(std::ceil(rows / std::clamp(batch, 1.0, rows) - 1e-9));
  return {};
}

Result<TrainedModel> Trainer::run(const TrainHooks& hooks) {
  if (Status agreed = agree(); !agreed) return forward_error(agreed);
  auto optimizer = LazyOptimizer::make(settings_.optimizer, dimension_);
  if (!optimizer) return forward_error(optimizer);
  optimizer_ = *std::move(optimizer);
  weights_.assign(dimension_, 0.0F);
  sums_.assign(dimension_, 0.0);
  seen_.assign(ceil_div(dimension_, 64), 0);
  gradient_.dimension = dimension_;
  TrainedModel model;
  for (int epoch = 0; epoch < settings_.epochs && !model.converged; ++epoch) {
    EpochReport report{.epoch = epoch + 1};
    if (!model.epochs.empty()) report.seconds = model.epochs.back().seconds;
    if (Status done = run_epoch(epoch, hooks, report); !done) return forward_error(done);
    if (Status done = evaluate(report); !done) return forward_error(done);
    if (!std::isfinite(report.objective)) {
      return fail(ErrorCode::kRange, "the loss is not finite after data epoch " + std::to_string(epoch + 1) +
                                         "; lower the learning rate (--lr)");
    }
    if (!model.epochs.empty() && settings_.stop > 0) {
      const double before = model.epochs.back().test_loss;
      model.converged = std::fabs(report.test_loss - before) < settings_.stop * std::fabs(before);
    }
    model.epochs.push_back(report);
    hooks.epoch(report);
  }
  model.weights = std::move(weights_);
  return model;
}

Status Trainer::run_epoch(int epoch, const TrainHooks& hooks, EpochReport& report) {
  const auto begin = Clock::now();
  const double rate = settings_.optimizer.learning_rate / (1 + epoch * settings_.rate_decay);
  if (Status set = optimizer_->set_learning_rate(rate); !set) return set;
  Epoch order{.rows =
                  EpochRows(data_, settings_.seed + 0x10001 * static_cast<std::uint64_t>(exchange_.rank()),
                            static_cast<std::uint64_t>(epoch))};
  std::uint64_t bytes = 0;
  std::uint64_t plain = 0;
  for (std::uint64_t batch = 0; batch < batches_; ++batch) {
    if (hooks.interrupted()) return fail(ErrorCode::kAborted, "interrupted: no model is written");
    // Each rank's rows in equal pieces; whole quotients first, as a product could wrap.
    const auto border = [&](std::uint64_t rows, std::uint64_t b) {
      return rows / batches_ * b + rows % batches_ * b / batches_;
    };
    std::uint64_t of_all = 0;
    for (const std::uint64_t rows : rows_of_rank_) of_all += border(rows, batch + 1) - border(rows, batch);
    const std::uint64_t own_rows = rows_of_rank_[static_cast<std::size_t>(exchange_.rank())];
    const std::uint64_t own = border(own_rows, batch + 1) - border(own_rows, batch);
    // The exchange makes the mean over ranks, whatever number of rows each had.
    const double scale =
        static_cast<double>(exchange_.world()) / static_cast<double>(std::max<std::uint64_t>(1, of_all));
    if (Status taken = take_rows(order, own, scale); !taken) return taken;
    plain += 8 * gradient_.keys.size() * static_cast<std::uint64_t>(exchange_.world() - 1);
    const auto cost = exchange_.average(gradient_);
    if (!cost) return forward_error(cost);
    const auto update = Clock::now();
    optimizer_->step(gradient_, weights_);
    report.update_seconds += seconds_since(update);
    bytes += cost->bytes_sent;
    report.encode_seconds += cost->encode_seconds;
    report.exchange_seconds += cost->exchange_seconds;
    report.decode_seconds += cost->decode_seconds;
  }
  const double seconds = seconds_since(begin);
  const double coding = report.encode_seconds + report.exchange_seconds + report.decode_seconds;
  const auto sums = exchange_.sums(std::vector<double>{
      static_cast<double>(bytes), static_cast<double>(plain), seconds - coding, report.encode_seconds,
      report.exchange_seconds, report.decode_seconds,
      static_cast<double>(rows_of_rank_[static_cast<std::size_t>(exchange_.rank())]), report.update_seconds});
  if (!sums) return forward_error(sums);
  const double world = exchange_.world();
  report.bytes_per_step = (*sums)[0] / world / static_cast<double>(batches_);
  report.plain_ratio = (*sums)[0] > 0 ? (*sums)[1] / (*sums)[0] : kNotKnown;
  report.compute_seconds = (*sums)[2] / world;
  report.encode_seconds = (*sums)[3] / world;
  report.exchange_seconds = (*sums)[4] / world;
  report.decode_seconds = (*sums)[5] / world;
  report.rows_per_second = (*sums)[6] / seconds;
  report.update_seconds = (*sums)[7] / world;
  report.seconds += seconds;
  return {};
}

// The gradient of the next `count` rows' loss, times `scale`, in gradient_.
Status Trainer::take_rows(Epoch& epoch, std::uint64_t count, double scale) {
  if (settings_.bias && count > 0) {
    const auto key = static_cast<std::uint32_t>(dimension_ - 1);
    seen_[key / 64] |= std::uint64_t{1} << (key % 64);
    optimizer_->bring_up(std::span(&key, 1), weights_);
  }
  while (count > 0) {
    const auto taken =
        epoch.rows.take(count, [&](const RowBlock& block, std::span<const std::uint32_t> rows) {
          mark_keys(block, rows);
          optimizer_->bring_up(fresh_, weights_);
          add_gradient(block, rows, scale);
        });
    if (!taken) return forward_error(taken);
    if (*taken == 0) break;
    count -= *taken;
  }
  collect_gradient();
  return {};
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
    const double slope =
        scale * slope_of(settings_.loss, margin_of(block, row), target_of(settings_.loss, block.labels[row]));
    if (slope == 0) continue;
    for (std::size_t i = block.first_of(row); i < block.ends[row]; ++i) {
      sums_[block.keys[i]] += slope * static_cast<double>(block.values[i]);
    }
    if (settings_.bias) sums_[dimension_ - 1] += slope;
  }
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

Status Trainer::evaluate(EpochReport& report) {
  optimizer_->bring_up_all(weights_);
  double loss[2] = {0, 0};
  double right = 0;
  for (std::size_t i = 0; i < data_.entries().size(); ++i) {
    const auto block = data_.load(i);
    if (!block) return forward_error(block);
    const std::uint32_t part = data_.entries()[i].held_out;
    for (std::size_t row = 0; row < (*block)->rows(); ++row) {
      const double target = target_of(settings_.loss, (*block)->labels[row]);
      const double at = margin_of(**block, row);
      loss[part] += loss_of(settings_.loss, at, target);
      if (part == 1) right += (at > 0) == (target > 0) ? 1 : 0;
    }
  }
  const StoreTotals& totals = data_.totals();
  const auto sums = exchange_.sums(std::vector<double>{
      loss[0], loss[1], right, static_cast<double>(totals.rows[0]), static_cast<double>(totals.rows[1])});
  if (!sums) return forward_error(sums);
  double squares = 0;
  for (const float weight : weights_) squares += static_cast<double>(weight) * static_cast<double>(weight);
  report.train_loss = (*sums)[0] / (*sums)[3];
  report.objective = report.train_loss + 0.5 * settings_.optimizer.weight_decay * squares;
  const bool held_out = (*sums)[4] > 0;
  report.test_loss = held_out ? (*sums)[1] / (*sums)[4] : kNotKnown;
  report.accuracy = held_out && classifies(settings_.loss) ? (*sums)[2] / (*sums)[4] : kNotKnown;
  return {};
}

}  // namespace deltawire::linear
