// Models as .npz archives for numpy.load: weights (float32, by index of the data), bias (float32), and
// settings (the training settings as JSON text).
#pragma once

#include <string>
#include <vector>

#include "linear/objective.h"

namespace deltawire::linear {

struct LinearModel {
  std::vector<float> weights;
  float bias = 0;
  Loss loss = Loss::kLogistic;
  int hash_bits = 0;
  std::string settings;  // JSON, an object
};

// Writes the file completely, flushed to disk, or not at all.
void write_model(const std::string& path, const LinearModel& model, bool force);

LinearModel read_model(const std::string& path);

}  // namespace deltawire::linear
