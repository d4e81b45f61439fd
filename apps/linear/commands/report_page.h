// A training as one HTML page with everything in it: loss against seconds and against bytes, where the time
// went, and all figures; made to be read on a phone as well.
#pragma once

#include <array>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "linear/trainer.h"

namespace deltawire::cli {

// A part of training's seconds, as table 4 of FastSGD's paper divides them.
struct TimePart {
  const char* name;  // in JSON
  const char* label;
  double linear::EpochReport::* of_epoch;
  double seconds = 0;  // of all data epochs, means over ranks
};

// In the order of a step. What is left of the training's seconds is what no part counts.
std::array<TimePart, 6> time_parts(const linear::TrainedModel& model);

// REQUIRES: a data epoch.
std::string train_page(const nlohmann::ordered_json& settings, const linear::TrainSettings& train,
                       const linear::TrainedModel& model);

}  // namespace deltawire::cli
