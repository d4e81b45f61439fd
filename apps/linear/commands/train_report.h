// The report of a training: lines for people, and JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "linear/trainer.h"

namespace deltawire::linear {

std::string epoch_line(const EpochReport& report, const TrainSettings& settings);

// Why training ended and how far from the minimum, without a line break. REQUIRES, here and below: at least
// one data epoch.
std::string ending_line(const TrainSettings& settings, const TrainedModel& model);

// That line, and a second one if the model is no better than a constant.
std::string ending_lines(const TrainSettings& settings, const TrainedModel& model);

// {"settings": ..., "converged": ..., "gap_is_bound": ..., "final": {...}, "time_split": {...},
// "epochs": [{...}]}. Unknown figures are null.
std::string train_json(const nlohmann::ordered_json& settings, const TrainSettings& train,
                       const TrainedModel& model);

}  // namespace deltawire::linear
