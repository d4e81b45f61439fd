// A trace's gradients, read from its folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/outcome.h"
#include "cli/trace/trace.h"

namespace deltawire::cli {

// What a tensor's optimizer was about to use in a step.
struct Gradient {
  std::vector<float> values;        // all elements, or those of `keys`
  std::vector<float> significance;  // of each of `values`; empty: not known
  std::vector<std::uint32_t> keys;  // with TraceTensor::pairs: they grow, below TraceTensor::elements
};

// One entry for each tensor of the trace; none where it had no gradient.
using StepGradients = std::vector<std::optional<Gradient>>;

// Reads FOLDER/trace.json, and no gradient.
Outcome<Trace> open_trace(const std::string& folder);

// Reads the files of trace.steps[index]. Failures name the file. No memory is taken that the files' own bytes
// don't justify.
Outcome<StepGradients> read_step(const Trace& trace, std::size_t index);

// The content of a file of float32 values, .npy or a .dw file of a codec that loses nothing, which `name`'s
// ending tells: as read_step takes it for `tensor`, of `count` values with `pairs`.
Outcome<std::vector<float>> parse_values(std::vector<std::byte>& file, const std::string& name,
                                         const std::vector<std::uint64_t>& shape);

// The content of a file of keys below `elements`.
Outcome<std::vector<std::uint32_t>> parse_keys(std::vector<std::byte>& file, const std::string& name,
                                               std::uint64_t elements);

}  // namespace deltawire::cli
