// Checks a session's options in the C interface, and converts them to the library's types.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/deltawire.h"
#include "deltawire/reducer.h"
#include "deltawire/result.h"

namespace deltawire::c {

struct SessionOptions {
  MeshOptions mesh;
  ReducerOptions reducer;
};

// Errors: kInvalidArgument, kUnsupportedVersion; they name the option. Endpoints and rendezvous are not set
// yet.
Result<SessionOptions> session_options(const deltawire_session_options& given);

// Errors: kInvalidArgument; they name the endpoint, as one of `name`.
Result<std::vector<Endpoint>> endpoints_of(const char* const* given, std::size_t count,
                                           const std::string& name);

// Sets the endpoints of all ranks. Errors: kInvalidArgument.
Status add_endpoints(const deltawire_session_options& given, MeshOptions& mesh);
Status add_rendezvous(const deltawire_session_options& given, const char* rendezvous, MeshOptions& mesh);

// 1 ms to 24 h. kInvalidArgument otherwise.
Result<std::chrono::milliseconds> milliseconds_of(std::int64_t count, std::string_view name);

}  // namespace deltawire::c
