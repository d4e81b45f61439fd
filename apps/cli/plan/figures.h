// What a plan is made from: a model's tensors, and figures of codecs; measured here, or read from a file that
// an earlier plan has written.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/measure/input.h"
#include "cli/measure/method.h"
#include "cli/outcome.h"
#include "deltawire/planner.h"

namespace deltawire::cli {

// What is to be measured: a codec spec or rules, with the pattern to plan it for.
struct Candidate {
  std::string text;  // as given: "3lc", "ring(int8)"
  Pattern pattern = Pattern::kDirect;
  Method codecs;  // what stands in the pattern
};

// Of codec specs, rules, reducer specs ("gather(3lc)"), or "all"; each once. Failures (exit status 2) name
// the text; "powersgd" is one.
Outcome<std::vector<Candidate>> candidates_of(const std::vector<std::string>& texts);

// The model's tensors, with all their elements.
std::vector<PlanTensor> tensors_of(const Input& input);

// As exchanges cut them: no part of more than 81,920 elements. Figures of larger parts would be others, as
// statistics belong to parts, and caches are small.
Input cut_for_exchange(const Input& input);

// Measures on this machine, by one thread: bits in the long run, with error feedback where the codec has it,
// and the time of a message and a value. `input` as cut_for_exchange makes it. Nothing when interrupted.
// Failures: the codec refuses these values.
std::optional<Outcome<CodecFigures>> measure_figures(const Candidate& candidate, const Input& input,
                                                     const MeasureOptions& options,
                                                     const std::function<void(const char*)>& stage);

struct FiguresFile {
  std::vector<PlanTensor> tensors;  // empty: the file names none
  std::vector<CodecFigures> codecs;
};

// Parses a JSON text called `name` in messages, which name the field. A total function of the text.
Outcome<FiguresFile> parse_figures(const std::string& text, const std::string& name);

}  // namespace deltawire::cli
