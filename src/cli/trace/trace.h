// A trace's table of contents, trace.json: docs/guides/traces.md is its specification.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/outcome.h"

namespace deltawire::cli {

struct TraceTensor {
  std::string name;
  std::vector<std::uint64_t> shape;
  bool pairs = false;          // gradients come as keys and values
  std::uint64_t elements = 0;  // the product of `shape`, below 2^32
};

// The files of one gradient: relative paths that name nothing above the trace's folder.
struct TraceFiles {
  std::string values;
  std::string significance;  // empty: not known
  std::string keys;          // of `pairs` alone
};

struct TraceStep {
  std::uint64_t step = 0;                          // grows from 1
  std::vector<std::optional<TraceFiles>> tensors;  // one for each of the trace's; none: no gradient
};

struct Trace {
  std::string folder;
  std::string model;  // in words, and may be empty: so are the next two
  std::string optimizer;
  std::string command;
  std::vector<TraceTensor> tensors;
  std::vector<TraceStep> steps;
};

// Parses the text of a trace.json named `name` in messages, which name the field as well. A total function
// of the text; fields that the format does not know are left alone.
Outcome<Trace> parse_trace(std::string_view text, const std::string& name);

}  // namespace deltawire::cli
