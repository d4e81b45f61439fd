// Specs as values: what the text of a spec says, parsed once, for programs that must know more of it than
// that a reducer can be made from it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deltawire/codec.h"
#include "deltawire/export.h"
#include "deltawire/result.h"

namespace deltawire {

// "name:key=value,key=value" in pieces: a codec, an optimizer, or an exchange pattern.
struct DELTAWIRE_API NamedParameters {
  std::string name;
  std::vector<std::pair<std::string, std::string>> parameters;  // in the order of the text

  // The value of a parameter; empty if the text doesn't have it.
  std::string_view value(std::string_view key) const noexcept;
};

// Splits such a text; `kind` is what the name stands for, in errors. kInvalidArgument for an empty name or
// parameter, a parameter without '=', or a repeated key.
DELTAWIRE_API Result<NamedParameters> parse_named_parameters(std::string_view text,
                                                             std::string_view kind = "codec");

// Which tensors, and how they are coded: one rule of a spec. All texts are canonical.
struct DELTAWIRE_API SpecRule {
  std::string text;          // all of it: "conv* elements>=4096: topk:k=0.01 with momentum=0.9"
  std::string name_pattern;  // "conv*"; empty: every name
  std::string codec;        // with what stands before it, as PartPlan::codec: "topk:k=0.01 with momentum=0.9"
  std::string codec_alone;  // "topk:k=0.01"
  NamedParameters codec_parameters;  // of codec_alone
  const CodecInfo* info = nullptr;   // of the codec with these parameters; lives as long as the process

  // The recipe that it was written as, e.g. "sparseloco"; empty if none. A canonical text doesn't name it.
  std::string recipe;

  float momentum = 0;          // before the codec; 0: none
  bool changes_input = false;  // clip or momentum: something else than the gradient is coded
  bool names_steps = false;    // it is for some steps alone
  // Most of a gradient waits in the residual and is sent in later steps, where an optimizer's momentum
  // multiplies it. A momentum before the codec takes that one's place, so that the rule is not late.
  bool is_late = false;

  // Whether its name pattern matches.
  bool matches(std::string_view tensor) const noexcept;
};

struct SpecDefaults {
  std::string_view pattern = {};    // of codecs that stand alone; empty: the one that they name as theirs
  std::uint64_t ranks_of_host = 0;  // in place of "host" in "hierarchical:group=host"; 0: unknown
};

// A reducer's spec, "pattern(codecs)". Equal texts are equal on the wire.
struct DELTAWIRE_API Spec {
  std::string text;             // canonical: "direct(3lc:s=1.75,mode=auto,runs=on)"
  std::string given;            // the text that was parsed: "3lc"
  std::string pattern;          // with its parameters: "hierarchical:group=8,within=bf16:stochastic=off"
  std::string pattern_name;     // "hierarchical"
  bool names_pattern = false;   // `given` names it; else it is a default
  std::string codecs;           // between the brackets
  std::vector<SpecRule> rules;  // in order, at least one; the last fits all

  bool keeps_residual = false;  // of any rule, or of the pattern
  bool sends_sums = false;      // partial sums, not a rank's own elements: `ring`, `hierarchical`
  bool takes_backend = false;   // ReducerOptions::backend may code for its pattern

  // Of local steps, by a rule's recipe: their optimizer keeps the momentum of what was sent; and what the
  // weights don't show is held back before it is coded.
  bool keeps_inner_momentum = false;
  bool holds_back = false;

  // Whether any rule's codec is said to be so, e.g. &CodecInfo::significance.
  bool any(bool CodecInfo::* property) const noexcept;

  // With this `pull` for every rule whose codec takes one and names none: 3lc, where owners send means back
  // that they have coded a second time. With `gather`, where none do, it is the same spec.
  Result<Spec> with_pull(float pull) const;

  // With this codec in place of a rule's own in as many first steps as `steps_of` says; 0: in none. A spec
  // that names steps has a schedule of its own, and stays the same.
  Result<Spec> with_first_steps(std::string_view codec,
                                const std::function<std::uint64_t(const SpecRule&)>& steps_of) const;

  // Parses what make_reducer takes, and recipes that hold back. Errors: those of make_reducer;
  // kInvalidArgument for "group=host" where the host's ranks are unknown.
  static Result<Spec> parse(std::string_view text, const SpecDefaults& defaults = {});
};

}  // namespace deltawire
