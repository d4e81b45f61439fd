// What a training's checkpoint has in it, in this order: where it stands, the figures of data epochs, weights
// as they rest (of those owned here, with owners), the optimizer, what the exchange keeps, and the pairs that
// wait where it keeps losses (Exchange::keep_losses).
#include <array>
#include <cmath>
#include <utility>

#include "linear/trainer.h"

namespace deltawire::linear {
namespace {

constexpr std::array kFigures{&EpochReport::train_loss,
                              &EpochReport::objective,
                              &EpochReport::test_loss,
                              &EpochReport::accuracy,
                              &EpochReport::constant_loss,
                              &EpochReport::constant_accuracy,
                              &EpochReport::gap,
                              &EpochReport::seconds,
                              &EpochReport::rows_per_second,
                              &EpochReport::bytes_per_step,
                              &EpochReport::weights_bytes_per_step,
                              &EpochReport::evaluation_bytes,
                              &EpochReport::bytes_sent,
                              &EpochReport::plain_ratio,
                              &EpochReport::compute_seconds,
                              &EpochReport::encode_seconds,
                              &EpochReport::exchange_seconds,
                              &EpochReport::decode_seconds,
                              &EpochReport::update_seconds,
                              &EpochReport::checkpoint_seconds};

void add_figures(std::vector<double>& figures, const EpochReport& report) {
  for (const double EpochReport::* figure : kFigures) figures.push_back(report.*figure);
}

EpochReport report_of(std::span<const double> figures, std::size_t i) {
  EpochReport report{.epoch = static_cast<int>(i) + 1};
  for (std::size_t k = 0; k < kFigures.size(); ++k) report.*kFigures[k] = figures[kFigures.size() * i + k];
  return report;
}

}  // namespace

Status Trainer::save(Checkpoints& checkpoints) {
  auto out = checkpoints.begin(exchange_.steps(), data_.checksum());
  if (!out) return forward_error(out);
  const std::array<std::uint64_t, 5> place{progress_.epoch, progress_.batch, progress_.bytes, progress_.plain,
                                           progress_.weights};
  std::vector<double> figures;
  for (const EpochReport& report : progress_.epochs) add_figures(figures, report);
  add_figures(figures, progress_.report);
  const auto exchanged = exchange_.save();
  if (!exchanged) return forward_error(exchanged);
  Status done = out->values(std::span<const std::uint64_t>(place));
  if (done) done = out->values(std::span<const double>(figures));
  if (done && owned_) done = owned_->save(*out);
  if (done && !owned_) done = out->values(std::span<const float>(weights_));
  if (done && !owned_) done = optimizer_->save(*out);
  if (done) done = out->values(std::span<const std::byte>(*exchanged));
  if (done && exchange_.residual() != nullptr) done = exchange_.residual()->save(*out);
  return done ? checkpoints.keep(*out, exchange_.steps()) : done;
}

Status Trainer::resume(Checkpoints& checkpoints) {
  auto in = checkpoints.newest(exchange_, data_.checksum());
  if (!in) return forward_error(in);
  std::array<std::uint64_t, 5> place{};
  std::vector<double> figures;
  std::vector<std::byte> exchanged;
  Status done = in->values_into(std::span<std::uint64_t>(place));
  if (done) done = in->values(figures);
  if (done && owned_) done = owned_->load(*in);
  if (done && !owned_) done = in->values_into(std::span<float>(weights_));
  if (done && !owned_) done = optimizer_->load(*in);
  if (done) done = in->values(exchanged);
  PairResidual waiting;
  if (done && exchange_.residual() != nullptr) done = waiting.load(*in, dimension_);
  if (done) done = in->end();
  if (!done) return done;
  const auto [epoch, batch, bytes, plain, weights] = place;
  const std::uint64_t step = in->head().step;
  if (epoch > step / batches_ || batch != step - epoch * batches_ || batch > batches_ ||
      figures.size() != kFigures.size() * (epoch + 1)) {
    return in->damaged("makes no sense");
  }
  if (epoch >= static_cast<std::uint64_t>(settings_.epochs)) {
    return fail(ErrorCode::kMismatch, in->path() + ": is of data epoch " + std::to_string(epoch + 1) +
                                          "; resume with at least as many --epochs");
  }
  progress_ = {.epoch = epoch,
               .batch = batch,
               .bytes = bytes,
               .plain = plain,
               .weights = weights,
               .report = {},
               .epochs = {}};
  for (std::size_t i = 0; i < epoch; ++i) progress_.epochs.push_back(report_of(figures, i));
  progress_.report = report_of(figures, epoch);
  const Status loaded = exchange_.load(exchanged, step);
  if (loaded && exchange_.residual() != nullptr) *exchange_.residual() = std::move(waiting);
  return loaded ? loaded : fail(loaded.error().code, in->path() + ": " + loaded.error().message);
}

}  // namespace deltawire::linear
