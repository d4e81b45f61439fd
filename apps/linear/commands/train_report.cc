#include "linear/commands/train_report.h"

#include <cmath>
#include <span>

#include <nlohmann/json.hpp>

#include "cli/number_text.h"

namespace deltawire::linear {
namespace {

using Json = nlohmann::ordered_json;

Json json_number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

std::string percent(double share) {
  return cli::rounded(100 * share) + " %";
}

std::string stop_text(const TrainSettings& settings) {
  return "--stop " + cli::significant(100 * settings.stop, 6);
}

Json epoch_json(const EpochReport& report) {
  Json all{{"epoch", report.epoch}};
  for (const EpochFigure& figure : kEpochFigures) all[figure.name] = json_number(report.*figure.member);
  return all;
}

// Seconds of a training by what they went into, divided as in table 4 of FastSGD's paper: means over ranks.
// The parts need not add up to the training time.
Json time_split(const TrainedModel& model) {
  Json split{{"seconds", model.epochs.back().seconds}};
  for (const EpochFigure& figure : std::span(kEpochFigures).last(kEpochTimes)) {
    double seconds = 0;
    for (const EpochReport& epoch : model.epochs) seconds += epoch.*figure.member;
    split[figure.name] = seconds;
  }
  return split;
}

}  // namespace

std::string epoch_line(const EpochReport& report, const TrainSettings& settings) {
  std::string line = "epoch " + std::to_string(report.epoch) + "/" + std::to_string(settings.epochs) +
                     "  train " + cli::rounded(report.train_loss);
  if (std::isfinite(report.test_loss)) {
    line += "  test " + cli::rounded(report.test_loss) +
            " (a constant: " + cli::rounded(report.constant_loss) + ")";
  }
  if (std::isfinite(report.accuracy)) {
    line +=
        "  accuracy " + percent(report.accuracy) + " (a constant: " + percent(report.constant_accuracy) + ")";
  }
  if (std::isfinite(report.gap)) {
    line += std::string("  above the minimum by ") + (settings.gap_is_bound() ? "at most " : "about ") +
            percent(report.gap);
  }
  line += "  " + cli::grouped(static_cast<std::uint64_t>(report.rows_per_second)) + " rows/s";
  if (std::isfinite(report.plain_ratio)) {
    line += "  " + cli::grouped(static_cast<std::uint64_t>(report.bytes_per_step)) + " bytes a step, " +
            cli::times_smaller_text(report.plain_ratio) + " than plain pairs";
  }
  const double left = report.seconds / report.epoch * (settings.epochs - report.epoch);
  return line + "  " + cli::rounded(report.seconds) + " s, at most " + cli::rounded(left) + " s left";
}

std::string ending_line(const TrainSettings& settings, const TrainedModel& model) {
  const EpochReport& last = model.epochs.back();
  std::string line = "the objective, " + cli::rounded(last.objective);
  if (std::isfinite(last.gap)) {
    line += settings.gap_is_bound() ? ", is at most " + percent(last.gap) + " above its minimum"
                                    : ", changed by " + percent(last.gap) +
                                          " in the second half of the data epochs, and is about as far from "
                                          "its minimum";
  } else {
    line += settings.gap_is_bound()
                ? "; how far it is above its minimum was not measured"
                : "; how far it is above its minimum is not known: there is no bound for this loss and --l2, "
                  "and an estimate takes 4 data epochs";
  }
  if (model.converged) return "ended by " + stop_text(settings) + ": " + line;
  line = "ended by --epochs " + std::to_string(settings.epochs) + ": " + line;
  if (settings.stop > 0) {
    line += ", where " + stop_text(settings) + " asks for less; give more --epochs, or another --lr";
  }
  return line;
}

std::string ending_lines(const TrainSettings& settings, const TrainedModel& model) {
  const EpochReport& last = model.epochs.back();
  std::string lines = ending_line(settings, model) + "\n";
  if (last.test_loss >= last.constant_loss) {
    lines += "this model is no better than a constant: its held-out loss is " + cli::rounded(last.test_loss) +
             ", that of one guess for all rows " + cli::rounded(last.constant_loss) + "\n";
  }
  return lines;
}

std::string train_json(const Json& settings, const TrainSettings& train, const TrainedModel& model) {
  Json all{{"settings", settings},
           {"converged", model.converged},
           {"gap_is_bound", train.gap_is_bound()},
           {"final", epoch_json(model.epochs.back())}};
  all["state_bytes_of_a_rank"] = model.state_bytes;
  all["time_split"] = time_split(model);
  all["epochs"] = Json::array();
  for (const EpochReport& report : model.epochs) all["epochs"].push_back(epoch_json(report));
  return all.dump(2) + "\n";
}

}  // namespace deltawire::linear
