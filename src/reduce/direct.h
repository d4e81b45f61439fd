// The `direct` pattern: a parameter server spread over the workers.
#pragma once

#include <memory>
#include <string_view>

#include "deltawire/reducer.h"

namespace deltawire {

Result<std::unique_ptr<Reducer>> make_direct_reducer(std::string_view codec_spec,
                                                     const ReducerOptions& options);

}  // namespace deltawire
