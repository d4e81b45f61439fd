// Plans as text, JSON and a plot.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "deltawire/planner.h"

namespace deltawire::cli {

struct SitePlan {
  Site site;
  Plan plan;
};

struct PlanReport {
  std::string input;    // source of the tensors
  std::string figures;  // source of the codecs' figures
  Workload workload;
  PlanOptions options;
  std::vector<SitePlan> plans;       // at least one; all with the same codecs
  std::vector<std::string> refused;  // one line for each codec that was left out
};

// One plan: a row per codec, fastest first, and the choice. Several: a row per site.
std::string plan_text(const PlanReport& report);

// The assumptions of the prediction, one per line.
std::string assumptions_text(const PlanReport& report);

// UTF-8 with a line break at its end. --figures reads back "figures" and "tensors".
std::string plan_json(const PlanReport& report);

enum class PlotAxis : std::uint8_t { kRanks, kLink };

// SVG: milliseconds per step over ranks or uplink rate, both on log axes. One line for each codec that the
// tier allows, and a dashed one for no compression. The same plans give the same bytes.
std::string plan_plot(std::span<const SitePlan> plans, PlotAxis axis);

}  // namespace deltawire::cli
