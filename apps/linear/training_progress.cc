#include "linear/training_progress.h"

#include <array>
#include <span>

namespace deltawire::linear {
namespace {

void add_figures(std::vector<double>& figures, const EpochReport& report) {
  for (const EpochFigure& figure : kEpochFigures) figures.push_back(report.*figure.member);
}

EpochReport report_of(std::span<const double> figures, std::size_t i) {
  EpochReport report{.epoch = static_cast<int>(i) + 1};
  for (std::size_t k = 0; k < kEpochFigures.size(); ++k) {
    report.*kEpochFigures[k].member = figures[kEpochFigures.size() * i + k];
  }
  return report;
}

}  // namespace

void TrainingProgress::add(const Report& sent) {
  report.encode_seconds += sent.encode_seconds;
  report.exchange_seconds += sent.exchange_seconds;
  report.decode_seconds += sent.decode_seconds;
  bytes += sent.bytes_sent;
}

Status TrainingProgress::save(CheckpointWriter& out) const {
  const std::array<std::uint64_t, 4> place{epoch, batch, bytes, plain};
  std::vector<double> figures;
  for (const EpochReport& each : epochs) add_figures(figures, each);
  add_figures(figures, report);
  const Status done = out.values(std::span<const std::uint64_t>(place));
  return done ? out.values(std::span<const double>(figures)) : done;
}

Status TrainingProgress::load(CheckpointReader& in, std::uint64_t batches) {
  std::array<std::uint64_t, 4> place{};
  std::vector<double> figures;
  Status done = in.values_into(std::span<std::uint64_t>(place));
  if (done) done = in.values(figures);
  if (!done) return done;
  *this = {
      .epoch = place[0], .batch = place[1], .bytes = place[2], .plain = place[3], .report = {}, .epochs = {}};
  const std::uint64_t step = in.head().step;
  if (epoch > step / batches || batch != step - epoch * batches || batch > batches ||
      figures.size() != kEpochFigures.size() * (epoch + 1)) {
    return in.damaged("makes no sense");
  }
  for (std::size_t i = 0; i < epoch; ++i) epochs.push_back(report_of(figures, i));
  report = report_of(figures, epoch);
  return {};
}

}  // namespace deltawire::linear
