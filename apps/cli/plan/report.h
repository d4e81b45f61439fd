// Plans as text and JSON.
#pragma once

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

}  // namespace deltawire::cli
