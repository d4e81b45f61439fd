#include "linear/commands/grid.h"

#include <cmath>
#include <cstdio>
#include <iostream>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/interrupt.h"
#include "cli/number_text.h"

namespace deltawire::cli {
namespace {

std::string number(double value) {
  char text[32];
  (void)std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

std::string row_of(const std::string& rate, const std::string& decay, const std::string& loss) {
  char text[128];
  (void)std::snprintf(text, sizeof text, "%-14s  %-6s  %s", rate.c_str(), decay.c_str(), loss.c_str());
  return text;
}

std::string row_of(const linear::GridPoint& point) {
  std::string loss = "no finite loss";
  if (std::isfinite(point.loss)) {
    loss = number(point.loss) + " after " + std::to_string(point.epochs) + " data epochs";
  }
  return row_of(number(point.learning_rate), number(point.rate_decay), loss);
}

std::string choice_line(const linear::GridReport& report, const linear::Grid& grid) {
  const linear::GridPoint& best = report.tried[report.best];
  std::string line = std::string("best by the ") + (report.judged_by_test ? "held-out loss" : "objective") +
                     " on " + grouped(report.rows) + " rows: --lr " + number(best.learning_rate) +
                     " --decay " + number(best.rate_decay);
  if (best.learning_rate == grid.rates.front()) line += " (the grid's smallest rate: try smaller ones)";
  if (best.learning_rate == grid.rates.back()) line += " (the grid's largest rate: try larger ones)";
  return line;
}

}  // namespace

void add_grid_options(CLI::App* command, GridOptions& options) {
  CLI::Option* grid =
      command
          ->add_flag("--grid", options.wanted,
                     "Try learning rates and decays on a sample of the rows, train with the best")
          ->excludes("--lr")
          ->excludes("--decay");
  command->add_option("--grid-sample", options.sample_percent, "Percent of the rows, at least 1,000 of them")
      ->check(CLI::Range(0.0, 100.0).description(""))
      ->needs(grid)
      ->type_name("P")
      ->capture_default_str();
}

Result<linear::GridReport> choose_by_grid(const GridOptions& options, bool tells, std::uint64_t memory_bytes,
                                          linear::TrainSettings& train, linear::BlockStore& data,
                                          linear::Exchange& exchange) {
  linear::GridSettings settings{.grid = linear::grid_for(train.optimizer.kind),
                                .share = options.sample_percent / 100};
  settings.memory_bytes = static_cast<std::uint64_t>(settings.share * static_cast<double>(memory_bytes));
  settings.interrupted = interrupted;
  if (tells) {
    std::cout << row_of("learning rate", "decay", "loss") << std::endl;
    settings.tried = [](const linear::GridPoint& point) { std::cout << row_of(point) << std::endl; };
  }
  auto report = linear::search_grid(train, settings, data, exchange);
  if (!report) return report;
  const linear::GridPoint& best = report->tried[report->best];
  train.optimizer.learning_rate = best.learning_rate;
  train.rate_decay = best.rate_decay;
  if (tells) std::cout << choice_line(*report, settings.grid) << std::endl;
  return report;
}

nlohmann::ordered_json grid_json(const linear::GridReport& report) {
  nlohmann::ordered_json all{{"sample_percent", 100 * report.share},
                             {"sample_rows", report.rows},
                             {"judged_by", report.judged_by_test ? "test_loss" : "objective"},
                             {"tried", nlohmann::ordered_json::array()}};
  for (const linear::GridPoint& point : report.tried) {
    all["tried"].push_back(
        {{"learning_rate", point.learning_rate},
         {"rate_decay", point.rate_decay},
         {"loss", std::isfinite(point.loss) ? nlohmann::ordered_json(point.loss) : nlohmann::ordered_json()},
         {"epochs", point.epochs}});
  }
  return all;
}

}  // namespace deltawire::cli
