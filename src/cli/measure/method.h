// One method on one input: all that `deltawire compare` says of it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "cli/measure/input.h"
#include "cli/outcome.h"
#include "deltawire/policy.h"

namespace deltawire::cli {

inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
inline constexpr int kFeedbackSteps = 20;

struct Method {
  std::string spec;       // as given
  std::string canonical;  // with all parameters
};

struct MeasureOptions {
  Policy policy;
  double seconds = 0.3;  // of timing, for each method and input
  int streams = 8;       // of random numbers, for methods that draw some
};

// What was not measured is kUnknown, because of `failed`. The figures are defined in docs/reference/compare.md.
struct Row {
  std::string input;
  Method method;
  std::string failed;  // empty: nothing did
  bool error_feedback = false;
  int streams = 1;
  double bits_per_value = kUnknown;
  double times_smaller = kUnknown;
  double relative_l2 = kUnknown;
  double cosine = kUnknown;
  double max_error = kUnknown;
  double bias = kUnknown;
  double gain = kUnknown;
  double feedback_relative_l2 = kUnknown;
  double feedback_bits_per_value = kUnknown;
  double encode_gb_s = kUnknown;
  double decode_gb_s = kUnknown;
  double copy_gb_s = kUnknown;
  double encode_to_copy = kUnknown;
  double decode_to_copy = kUnknown;
};

// The methods that the texts name: codec specs, rules, or "all" for every registered codec and its examples;
// each once, whatever it is called. Failures (exit status 2) name the text.
Outcome<std::vector<Method>> methods_of(const std::vector<std::string>& texts);

// Measures; `stage` is told what is under way. Nothing when interrupted.
std::optional<Row> measure_method(const Method& method, const Input& input, const MeasureOptions& options,
                                  const std::function<void(const char* stage)>& stage);

}  // namespace deltawire::cli
