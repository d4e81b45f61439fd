// The input of a plan: a model's tensors, and figures of codecs, measured here or read from the file of an
// earlier plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/measure/input.h"
#include "cli/outcome.h"
#include "deltawire/planner.h"
#include "deltawire/policy.h"
#include "deltawire/spec.h"

namespace deltawire::cli {

// A codec spec or rules to measure, with the pattern to plan it for.
struct Candidate {
  std::string text;        // as given: "3lc", "ring(int8)"
  Spec spec;               // as it is with the optimizer
  std::string unfit = {};  // why training would lose by it with the optimizer; empty: it would not
};

// Parses codec specs, rules, reducer specs ("gather(3lc)"), or "all"; each counts once. `optimizer`: that of
// the training, by its class, stepped by the table's rules; empty: unknown. Failures (exit status 2) name the
// text; "powersgd" is one.
std::vector<Candidate> candidates_of(const std::vector<std::string>& texts,
                                     const std::string& optimizer = {});

// The model's tensors, with all their elements.
std::vector<PlanTensor> tensors_of(const Input& input);

// Cuts the tensors as exchanges do, into parts of at most 81,920 elements. Larger parts would have other
// figures, since statistics belong to parts, and caches are small. Those of a model of so many `parameters`
// are longer: values repeat, until the longest tensor fills a part.
Input cut_for_exchange(const Input& input, std::uint64_t parameters = 0);

// Measures on this machine with one thread, for `seconds` and at least some rounds. `input`: from
// cut_for_exchange. Nothing if interrupted. Failures: the codec refuses these values, or does not go with the
// optimizer.
std::optional<CodecFigures> measure_figures(const Candidate& candidate, const Input& input,
                                            const Policy& policy, double seconds);

struct FiguresFile {
  std::vector<PlanTensor> tensors;  // empty if the file has none
  std::vector<CodecFigures> codecs;
};

// Parses a JSON text. Messages have its `name` and the field. Any text gives figures or a failure.
FiguresFile parse_figures(const std::string& text, const std::string& name);

}  // namespace deltawire::cli
