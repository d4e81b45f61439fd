// What a training tells: a line for each data epoch, what ended it, and all figures as JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "linear/trainer.h"

namespace deltawire::cli {

// One line.
std::string epoch_line(const linear::EpochReport& report, const linear::TrainSettings& settings);

// Why training ended, and how far from the minimum; without a line's end. REQUIRES: a data epoch, here and
// below.
std::string ending_line(const linear::TrainSettings& settings, const linear::TrainedModel& model);

// That line, and one more where the model is no better than one guess for all rows.
std::string ending_lines(const linear::TrainSettings& settings, const linear::TrainedModel& model);

// {"settings": ..., "converged": ..., "gap_is_bound": ..., "final": {...}, "time_split": {...},
// "epochs": [{...}]}. What is not known is null.
std::string train_json(const nlohmann::ordered_json& settings, const linear::TrainSettings& train,
                       const linear::TrainedModel& model);

}  // namespace deltawire::cli
