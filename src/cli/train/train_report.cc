#include "cli/train/train_report.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "cli/number_text.h"
#include "cli/train/report_page.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

Json epoch_json(const linear::EpochReport& report) {
  return {{"epoch", report.epoch},
          {"train_loss", number(report.train_loss)},
          {"objective", number(report.objective)},
          {"test_loss", number(report.test_loss)},
          {"accuracy", number(report.accuracy)},
          {"seconds", report.seconds},
          {"rows_per_second", report.rows_per_second},
          {"bytes_per_step", report.bytes_per_step},
          {"weights_bytes_per_step", report.weights_bytes_per_step},
          {"bytes_sent", report.bytes_sent},
          {"evaluation_bytes", report.evaluation_bytes},
          {"times_smaller_than_plain_pairs", number(report.plain_ratio)},
          {"compute_seconds", report.compute_seconds},
          {"encode_seconds", report.encode_seconds},
          {"exchange_seconds", report.exchange_seconds},
          {"decode_seconds", report.decode_seconds},
          {"update_seconds", report.update_seconds},
          {"checkpoint_seconds", report.checkpoint_seconds}};
}

}  // namespace

std::string epoch_line(const linear::EpochReport& report, int epochs) {
  std::string line = "epoch " + std::to_string(report.epoch) + "/" + std::to_string(epochs) + "  train " +
                     rounded(report.train_loss);
  if (std::isfinite(report.test_loss)) line += "  test " + rounded(report.test_loss);
  if (std::isfinite(report.accuracy)) line += "  accuracy " + rounded(100 * report.accuracy) + " %";
  line += "  " + grouped(static_cast<std::uint64_t>(report.rows_per_second)) + " rows/s";
  if (std::isfinite(report.plain_ratio)) {
    line += "  " + grouped(static_cast<std::uint64_t>(report.bytes_per_step)) + " bytes a step, " +
            rounded(report.plain_ratio) + " times smaller than plain pairs";
  }
  const double left = report.seconds / report.epoch * (epochs - report.epoch);
  return line + "  " + rounded(report.seconds) + " s, at most " + rounded(left) + " s left";
}

std::string train_json(const Json& settings, const linear::TrainedModel& model) {
  Json all{
      {"settings", settings}, {"converged", model.converged}, {"final", epoch_json(model.epochs.back())}};
  all["state_bytes_of_a_rank"] = model.state_bytes;
  all["time_split"]["seconds"] = model.epochs.back().seconds;
  for (const TimePart& part : time_parts(model)) all["time_split"][part.name] = part.seconds;
  all["epochs"] = Json::array();
  for (const linear::EpochReport& report : model.epochs) all["epochs"].push_back(epoch_json(report));
  return all.dump(2) + "\n";
}

}  // namespace deltawire::cli
