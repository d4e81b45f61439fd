// What sessions and elastic sessions share in the C interface.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/deltawire.h"
#include "deltawire/reducer.h"
#include "deltawire/result.h"

struct deltawire_listener {
  std::unique_ptr<deltawire::Listener> listener;  // null once a session has it
  std::string endpoint;
};

namespace deltawire::c {

// kState where another session has it.
std::unique_ptr<Listener> consume(deltawire_listener& given);

// kInvalidArgument for what is no loss scale.
void check_scale(float scale, std::string_view whose);

deltawire_report report_of(const Report& report);

struct SessionOptions {
  MeshOptions mesh;
  ReducerOptions reducer;
};

// Errors: kInvalidArgument, kUnsupportedVersion; they name the option. Endpoints and rendezvous are not set
// yet.
SessionOptions session_options(const deltawire_session_options& given);

// Errors: kInvalidArgument; they name the endpoint, as one of `name`.
std::vector<Endpoint> endpoints_of(const char* const* given, std::size_t count, const std::string& name);

// Sets the endpoints of all ranks. Errors: kInvalidArgument.
void add_endpoints(const deltawire_session_options& given, MeshOptions& mesh);
void add_rendezvous(const deltawire_session_options& given, const char* rendezvous, MeshOptions& mesh);

// 1 ms to 24 h. kInvalidArgument otherwise.
std::chrono::milliseconds milliseconds_of(std::int64_t count, std::string_view name);

}  // namespace deltawire::c
