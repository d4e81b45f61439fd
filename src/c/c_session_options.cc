#include <algorithm>
#include <cstring>
#include <span>

#include "c_session.h"
#include "call.h"

namespace deltawire::c {
namespace {

constexpr std::int64_t kDay = 86'400'000;  // milliseconds
constexpr int kWorldMax = 65'535;          // a larger number is no world size; how many fit, connect_tcp says

Result<Endpoint> endpoint_of(const char* given, const std::string& place) {
  if (given == nullptr) return forward_error(null_argument(place));
  auto endpoint = parse_endpoint(given);
  if (!endpoint) return fail(endpoint.error().code, place + ": " + endpoint.error().message);
  return endpoint;
}

Status check_place(const deltawire_session_options& given) {
  if (given.world_size < 1 || given.world_size > kWorldMax) {
    return fail(ErrorCode::kInvalidArgument, "world_size is " + std::to_string(given.world_size) +
                                                 "; it can be 1 to " + std::to_string(kWorldMax));
  }
  if (given.rank < 0 || given.rank >= given.world_size) {
    return fail(ErrorCode::kInvalidArgument, "rank " + std::to_string(given.rank) + " is not in a world of " +
                                                 std::to_string(given.world_size));
  }
  return {};
}

Result<ReducerOptions> reducer_options(const deltawire_session_options& given) {
  const auto fold = flag(given.fold_revert, "fold_revert");
  if (!fold) return forward_error(fold);
  const auto pass = flag(given.pass_not_finite, "pass_not_finite");
  if (!pass) return forward_error(pass);
  return ReducerOptions{.policy = {given.min_elements, *pass ? NonFinite::kPass : NonFinite::kError},
                        .revert = *fold ? Revert::kFold : Revert::kExact,
                        .threads = given.threads,
                        .seed = given.seed};
}

bool has_reserved(const deltawire_session_options& given) {
  return given.reserved_flag != 0 || given.reserved[0] > static_cast<std::uint64_t>(Encryption::kOff) ||
         std::ranges::any_of(std::span(given.reserved).subspan(1),
                             [](std::uint64_t field) { return field != 0; });
}

}  // namespace

Result<SessionOptions> session_options(const deltawire_session_options& given) {
  if (Status version = check_abi_version(given.abi_version, "deltawire_session_options"); !version) {
    return forward_error(version);
  }
  if (has_reserved(given)) {
    return fail(ErrorCode::kInvalidArgument, "deltawire_session_options: reserved is not 0");
  }
  SessionOptions options;
  if (Status place = check_place(given); !place) return forward_error(place);
  if (given.token == nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "token is NULL; give the same 32 secret bytes to every rank (openssl rand 32)");
  }
  const auto connect = milliseconds_of(given.connect_timeout_ms, "connect_timeout_ms");
  if (!connect) return forward_error(connect);
  if (given.arrival_timeout_ms < 0 || given.arrival_timeout_ms > kDay) {
    return fail(
        ErrorCode::kInvalidArgument,
        "arrival_timeout_ms is " + std::to_string(given.arrival_timeout_ms) + "; it can be 0 to 86,400,000");
  }
  const auto reducer = reducer_options(given);
  if (!reducer) return forward_error(reducer);
  options.reducer = *reducer;
  options.mesh.rank = given.rank;
  options.mesh.world_size = given.world_size;
  std::memcpy(options.mesh.token.data(), given.token, options.mesh.token.size());
  options.mesh.encryption = static_cast<Encryption>(given.reserved[0]);
  if (given.settings != nullptr) options.mesh.settings = given.settings;
  options.mesh.epoch = given.epoch;
  options.mesh.connect_timeout = *connect;
  options.mesh.arrival_timeout = std::chrono::milliseconds(given.arrival_timeout_ms);
  return options;
}

Result<std::vector<Endpoint>> endpoints_of(const char* const* given, std::size_t count,
                                           const std::string& name) {
  if (given == nullptr && count != 0) return forward_error(null_argument(name));
  std::vector<Endpoint> endpoints;
  for (const char* text : std::span(given, count)) {
    auto endpoint = endpoint_of(text, name + "[" + std::to_string(endpoints.size()) + "]");
    if (!endpoint) return forward_error(endpoint);
    endpoints.push_back(*std::move(endpoint));
  }
  return endpoints;
}

Status add_endpoints(const deltawire_session_options& given, MeshOptions& mesh) {
  auto endpoints = endpoints_of(given.endpoints, static_cast<std::size_t>(mesh.world_size), "endpoints");
  if (!endpoints) return forward_error(endpoints);
  mesh.endpoints = *std::move(endpoints);
  return {};
}

Status add_rendezvous(const deltawire_session_options& given, const char* rendezvous, MeshOptions& mesh) {
  if (given.endpoints != nullptr) {
    return fail(ErrorCode::kInvalidArgument,
                "both endpoints and a rendezvous were given; leave endpoints NULL, or call "
                "deltawire_session_open");
  }
  auto endpoint = endpoint_of(rendezvous, "rendezvous");
  if (!endpoint) return forward_error(endpoint);
  mesh.rendezvous = *std::move(endpoint);
  return {};
}

Result<std::chrono::milliseconds> milliseconds_of(std::int64_t count, std::string_view name) {
  if (count >= 1 && count <= kDay) return std::chrono::milliseconds(count);
  return fail(ErrorCode::kInvalidArgument,
              std::string(name) + " is " + std::to_string(count) + "; it can be 1 to 86,400,000");
}

}  // namespace deltawire::c
