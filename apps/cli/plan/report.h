// Plans as people and programs read them.
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
  std::string input;    // where the tensors are from
  std::string figures;  // where the codecs' figures are from
  Workload workload;
  PlanOptions options;
  std::vector<SitePlan> plans;       // one at least; all with the same codecs
  std::vector<std::string> refused;  // codecs that were left out: a line each
};

// One plan: a row for each codec, the fastest first, and what is chosen. Several: a row for each place.
std::string plan_text(const PlanReport& report);

// What the prediction takes for granted, a line each.
std::string assumptions_text(const PlanReport& report);

// UTF-8 with a line break at its end. "figures" and "tensors" are what --figures reads.
std::string plan_json(const PlanReport& report);

}  // namespace deltawire::cli
