// Reducer specs: "pattern(codecs)", or "codecs" with their default pattern. One row a pattern.
#include <array>
#include <string>

#include "channel/codec_rules.h"
#include "deltawire/reducer.h"
#include "reduce/patterns/patterns.h"

namespace deltawire {
namespace {

constexpr int kMaxThreads = 64;

struct Pattern {
  std::string_view name;
  Result<std::unique_ptr<WakeableReducer>> (*make)(std::string_view codecs, const ReducerOptions& options);
};

constexpr std::array<Pattern, 3> kPatterns{{
    {"direct", [](auto codec, const auto& options) { return make_direct_reducer(codec, options); }},
    {"ring", make_ring_reducer},
    {"gather", [](auto codec, const auto& options) { return make_gather_reducer(codec, options); }},
}};

std::string known_patterns() {
  std::string names;
  for (const Pattern& pattern : kPatterns) {
    names += (names.empty() ? "" : ", ") + std::string(pattern.name);
  }
  return names;
}

struct Split {
  std::string pattern;
  std::string_view codecs;
};

Result<Split> split(std::string_view spec) {
  const auto open = spec.find('(');
  if (open == std::string_view::npos) {
    const auto rules = CodecRules::parse(spec);
    if (!rules) return forward_error(rules);
    if (!rules->default_pattern().empty()) return Split{std::string(rules->default_pattern()), spec};
    return fail(ErrorCode::kInvalidArgument, "the codecs in '" + std::string(spec) +
                                                 "' go by different exchange patterns; write the one to use, "
                                                 "e.g. direct(" +
                                                 std::string(spec) + ")");
  }
  if (spec.back() != ')') {
    return fail(ErrorCode::kInvalidArgument,
                "reducer spec '" + std::string(spec) + "' lacks its closing bracket; write pattern(codec)");
  }
  return Split{std::string(spec.substr(0, open)), spec.substr(open + 1, spec.size() - open - 2)};
}

}  // namespace

Result<std::unique_ptr<WakeableReducer>> make_wakeable_reducer(std::string_view spec,
                                                               const ReducerOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return fail(ErrorCode::kInvalidArgument, "threads=" + std::to_string(options.threads) + " must be 1 to " +
                                                 std::to_string(kMaxThreads) + ", or 0 for the process's");
  }
  const Result<Split> parts = split(spec);
  if (!parts) return forward_error(parts);
  for (const Pattern& pattern : kPatterns) {
    if (pattern.name == parts->pattern) return pattern.make(parts->codecs, options);
  }
  return fail(ErrorCode::kInvalidArgument,
              "unknown exchange pattern '" + parts->pattern + "'; known: " + known_patterns());
}

Result<std::unique_ptr<Reducer>> make_reducer(std::string_view spec, const ReducerOptions& options) {
  return make_wakeable_reducer(spec, options);
}

}  // namespace deltawire
