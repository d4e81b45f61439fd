// The exchange patterns; make_reducer.cc names them in specs.
#pragma once

#include <memory>
#include <string_view>

#include "base/spec_text.h"
#include "reduce/patterns/owners.h"
#include "reduce/wakeable_reducer.h"

namespace deltawire {

// `most_elements` of a part, and of a message, in `direct` kPieceElements at most where they are dense; all
// ranks must have the same. Smaller ones are for tests.
Result<std::unique_ptr<WakeableReducer>> make_direct_reducer(std::string_view codecs,
                                                             const ReducerOptions& options,
                                                             std::uint64_t most_elements = kMostElements);
Result<std::unique_ptr<WakeableReducer>> make_ring_reducer(std::string_view codecs,
                                                           const ReducerOptions& options);
Result<std::unique_ptr<WakeableReducer>> make_gather_reducer(std::string_view codecs,
                                                             const ReducerOptions& options,
                                                             std::uint64_t most_elements = kMostElements);
// `pattern`: "powersgd:rank=4". kInvalidArgument for codecs with error feedback, besides the errors of
// make_reducer.
Result<std::unique_ptr<WakeableReducer>> make_powersgd_reducer(const ParsedSpec& pattern,
                                                               std::string_view codecs,
                                                               const ReducerOptions& options);
// `pattern`: "hierarchical:group=8,within=bf16"; `codecs` are those between groups. kInvalidArgument for a
// codec within groups that keeps a residual, and for a folding revert, besides the errors of make_reducer.
Result<std::unique_ptr<WakeableReducer>> make_hierarchical_reducer(const ParsedSpec& pattern,
                                                                   std::string_view codecs,
                                                                   const ReducerOptions& options);

}  // namespace deltawire
