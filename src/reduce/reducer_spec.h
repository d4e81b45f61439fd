// The two halves of a reducer's spec, and what is known of each exchange pattern.
#pragma once

#include <string_view>

#include "deltawire/result.h"

namespace deltawire {

struct SplitSpec {
  std::string_view pattern;  // with its parameters
  std::string_view codecs;
  bool names_pattern = false;  // else it is a default
};

// Of "pattern(codecs)", of codecs alone or of a pattern that may stand alone; views into `spec`, or of static
// storage. `default_pattern` is that of codecs alone; empty: the one that they name as theirs. Errors: those
// of make_channel; kInvalidArgument for codecs with different default patterns, a pattern without its codec,
// a missing bracket.
Result<SplitSpec> split_reducer_spec(std::string_view spec, std::string_view default_pattern = {});

struct PatternTraits {
  bool takes_backend = false;   // ReducerOptions::backend may code for it
  bool sends_sums = false;      // a rank sends partial sums, not its own elements
  bool keeps_residual = false;  // whatever its codecs do
  bool codes_means = false;     // owners send back what they have averaged, coded anew
};

// Of the pattern with this name, without parameters.
PatternTraits pattern_traits(std::string_view name) noexcept;

}  // namespace deltawire
