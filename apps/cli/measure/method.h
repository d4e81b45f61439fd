// Measures one method on one input: the figures of `deltawire compare`.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/measure/input.h"
#include "cli/outcome.h"
#include "deltawire/channel.h"
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
  double seconds = 0.3;  // spent on timing, for each method and input
  int streams = 8;       // of random numbers, for stochastic methods
};

// Medians. GB/s are 10^9 bytes of float32 values per second of the thread's processor time. The ratios
// compare with copies of the same values, made in turn with the coding.
struct Speed {
  double encode_gb_s = kUnknown;
  double decode_gb_s = kUnknown;
  double copy_gb_s = kUnknown;
  double encode_to_copy = kUnknown;
  double decode_to_copy = kUnknown;
};

// docs/reference/compare.md defines the figures. After a failure those not yet measured are kUnknown.
struct Row : Speed {
  std::string input;
  Method method;
  std::string failed;  // the error message; empty without one
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
};

// Parses codec specs and rules; "all" stands for every registered codec and its examples. Two specs of one
// method count once. Failures (exit status 2) name the text.
std::vector<Method> methods_of(const std::vector<std::string>& texts);

// Calls `stage` with the name of each stage as it begins. Nothing if interrupted.
std::optional<Row> measure_method(const Method& method, const Input& input, const MeasureOptions& options,
                                  const std::function<void(const char* stage)>& stage);

// Encodes and decodes the step repeatedly, as training does, with residuals, frames and checksums, on one
// thread, for about `seconds` and at least three times (or until interrupted). Errors: those of
// Channel::encode and decode.
Result<Speed> measure_speed(std::string_view codecs, const Policy& policy, const InputStep& step,
                            double seconds);

}  // namespace deltawire::cli
