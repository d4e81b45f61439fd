// A step's time against ranks or bandwidth, drawn as SVG.
#pragma once

#include <span>
#include <string>

#include "cli/plan/report.h"

namespace deltawire::cli {

enum class PlotAxis : std::uint8_t { kRanks, kLink };

// Both axes are log: to the right the ranks, or the rate up, of the plans; upwards milliseconds a step. A
// line for each codec that the tier allows, and a dashed one for plain. The same plans give the same bytes.
std::string plan_plot(std::span<const SitePlan> plans, PlotAxis axis);

}  // namespace deltawire::cli
