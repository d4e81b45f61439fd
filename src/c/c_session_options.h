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

// kInvalidArgument, kUnsupportedVersion: says which option. How ranks find each other is not in it yet.
Result<SessionOptions> session_options(const deltawire_session_options& given);

// How they do: by the endpoints of all, or where rank 0 listens. kInvalidArgument.
Status add_endpoints(const deltawire_session_options& given, MeshOptions& mesh);
Status add_rendezvous(const deltawire_session_options& given, const char* rendezvous, MeshOptions& mesh);

// 1 ms to 24 h. kInvalidArgument otherwise.
Result<std::chrono::milliseconds> milliseconds_of(std::int64_t count, std::string_view name);

}  // namespace deltawire::c
