// A session's options in the C interface, checked, as the rest of the library knows them.
#pragma once

#include <string>

#include "deltawire/connect.h"
#include "deltawire/deltawire.h"
#include "deltawire/reducer.h"
#include "deltawire/result.h"

namespace deltawire::c {

struct SessionOptions {
  MeshOptions mesh;
  ReducerOptions reducer;
};

// kInvalidArgument, kUnsupportedVersion: says which option. The settings that ranks compare lack the spec
// yet.
Result<SessionOptions> session_options(const deltawire_session_options& given);

// "127.0.0.1:4000", "[::1]:4000".
std::string endpoint_text(const Endpoint& endpoint);

// 1 ms to 24 h. kInvalidArgument otherwise.
Result<std::chrono::milliseconds> milliseconds_of(std::int64_t count, std::string_view name);

}  // namespace deltawire::c
