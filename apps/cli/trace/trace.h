// Traces: recorded gradients in a folder, listed in its trace.json. docs/reference/traces.md is the
// specification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/outcome.h"
#include "deltawire/tensor.h"

namespace deltawire::cli {

inline constexpr const char* kTraceContents = "trace.json";  // in a trace's folder

struct TraceTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  bool pairs = false;          // gradients come as keys and values
  std::uint64_t elements = 0;  // the product of `shape`, below 2^32
};

// The files of one gradient: relative paths that stay inside the trace's folder.
struct TraceFiles {
  std::string values;
  std::string significance;  // empty if unknown
  std::string keys;          // only with `pairs`
};

struct TraceStep {
  std::uint64_t step = 0;  // at least 1, and larger than that of the step before
  std::vector<std::optional<TraceFiles>>
      tensors;  // one for each tensor of the trace; none without a gradient
};

struct Trace {
  std::string folder;
  std::string model;  // these three are free text and may be empty
  std::string optimizer;
  std::string command;
  std::vector<TraceTensor> tensors;
  std::vector<TraceStep> steps;
};

// Parses the text of a trace.json. Messages begin with `name` and name the field. Any text gives a trace or a
// failure; unknown fields are ignored.
Trace parse_trace(std::string_view text, const std::string& name);

// The gradient of a tensor in a step, as its optimizer was about to use it.
struct Gradient {
  std::vector<float> values;        // all elements, or those of `keys`
  std::vector<float> significance;  // of each of `values`; empty if unknown
  std::vector<std::uint32_t> keys;  // with TraceTensor::pairs: strictly growing, below TraceTensor::elements
};

// One entry for each tensor of the trace; none where it had no gradient.
using StepGradients = std::vector<std::optional<Gradient>>;

// Reads FOLDER/trace.json but no gradient.
Trace open_trace(const std::string& folder);

// Reads the files of trace.steps[index]. Failures name the file. Memory stays in proportion to the files'
// bytes, whatever they claim.
StepGradients read_step(const Trace& trace, std::size_t index);

// Parses a file of float32 values: .npy or, if `name` ends so, a .dw file of a lossless codec.
std::vector<float> parse_values(Bytes file, const std::string& name, const std::vector<std::uint64_t>& shape);

// Parses a file of keys below `elements`.
std::vector<std::uint32_t> parse_keys(Bytes file, const std::string& name, std::uint64_t elements);

}  // namespace deltawire::cli
