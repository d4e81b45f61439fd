// The report of a training: lines for people, JSON, and an HTML page with figures, readable on a phone too.
#pragma once

#include <array>
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

// A part of the training time, divided as in table 4 of FastSGD's paper.
struct TimePart {
  const char* name;  // in JSON
  const char* label;
  double EpochReport::* of_epoch;
  double seconds = 0;  // of all data epochs; the mean over ranks
};

// In the order of a step. They need not add up to the training time.
std::array<TimePart, 6> time_parts(const TrainedModel& model);

// Loss against time and against bytes, the time split, and all figures, in one self-contained HTML page.
std::string train_page(const nlohmann::ordered_json& settings, const TrainSettings& train,
                       const TrainedModel& model);

}  // namespace deltawire::linear
