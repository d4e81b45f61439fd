// The exchange patterns; make_reducer.cc names them in specs.
#pragma once

#include <memory>
#include <string_view>

#include "deltawire/reducer.h"

namespace deltawire {

Result<std::unique_ptr<Reducer>> make_direct_reducer(std::string_view codec_spec,
                                                     const ReducerOptions& options);
Result<std::unique_ptr<Reducer>> make_ring_reducer(std::string_view codec_spec,
                                                   const ReducerOptions& options);
Result<std::unique_ptr<Reducer>> make_gather_reducer(std::string_view codec_spec,
                                                     const ReducerOptions& options);

}  // namespace deltawire
