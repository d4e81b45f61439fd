// What a training tells: a line for each data epoch, and all figures as JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "linear/trainer.h"

namespace deltawire::cli {

// One line; `epochs` is the most there can be.
std::string epoch_line(const linear::EpochReport& report, int epochs);

// {"settings": ..., "converged": ..., "final": {...}, "time_split": {...}, "epochs": [{...}]}. What is not
// known is null.
std::string train_json(const nlohmann::ordered_json& settings, const linear::TrainedModel& model);

}  // namespace deltawire::cli
