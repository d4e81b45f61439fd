#include <algorithm>
#include <cstring>
#include <span>

#include "c_session.h"
#include "call.h"

namespace deltawire::c {
namespace {

constexpr std::int64_t kDay = 86'400'000;  // milliseconds
constexpr int kWorldMax = 65'535;          // a larger number is no world size; how many fit, connect_tcp says

Endpoint endpoint_of(const char* given, const std::string& place) {
  require(given, place);
  auto endpoint = parse_endpoint(given);
  if (!endpoint) refuse(place + ": " + endpoint.error().message, endpoint.error().code);
  return *std::move(endpoint);
}

void check_place(const deltawire_session_options& given) {
  if (given.world_size < 1 || given.world_size > kWorldMax) {
    refuse("world_size is " + std::to_string(given.world_size) + "; it can be 1 to " +
           std::to_string(kWorldMax));
  }
  if (given.rank < 0 || given.rank >= given.world_size) {
    refuse("rank " + std::to_string(given.rank) + " is not in a world of " +
           std::to_string(given.world_size));
  }
}

ReducerOptions reducer_options(const deltawire_session_options& given) {
  const bool folds = flag(given.fold_revert, "fold_revert");
  const bool passes = flag(given.pass_not_finite, "pass_not_finite");
  return {.policy = {given.min_elements, passes ? NonFinite::kPass : NonFinite::kError},
          .revert = folds ? Revert::kFold : Revert::kExact,
          .threads = given.threads,
          .seed = given.seed};
}

bool has_reserved(const deltawire_session_options& given) {
  return given.reserved_flag != 0 || given.reserved[0] > static_cast<std::uint64_t>(Encryption::kOff) ||
         std::ranges::any_of(std::span(given.reserved).subspan(1),
                             [](std::uint64_t field) { return field != 0; });
}

}  // namespace

SessionOptions session_options(const deltawire_session_options& given) {
  check_abi_version(given.abi_version, "deltawire_session_options");
  if (has_reserved(given)) refuse("deltawire_session_options: reserved is not 0");
  SessionOptions options;
  check_place(given);
  if (given.token == nullptr) {
    refuse("token is NULL; give the same 32 secret bytes to every rank (openssl rand 32)");
  }
  options.mesh.connect_timeout = milliseconds_of(given.connect_timeout_ms, "connect_timeout_ms");
  if (given.arrival_timeout_ms < 0 || given.arrival_timeout_ms > kDay) {
    refuse("arrival_timeout_ms is " + std::to_string(given.arrival_timeout_ms) +
           "; it can be 0 to 86,400,000");
  }
  options.reducer = reducer_options(given);
  options.mesh.rank = given.rank;
  options.mesh.world_size = given.world_size;
  std::memcpy(options.mesh.token.data(), given.token, options.mesh.token.size());
  options.mesh.encryption = static_cast<Encryption>(given.reserved[0]);
  if (given.settings != nullptr) options.mesh.settings = given.settings;
  options.mesh.epoch = given.epoch;
  options.mesh.arrival_timeout = std::chrono::milliseconds(given.arrival_timeout_ms);
  return options;
}

std::vector<Endpoint> endpoints_of(const char* const* given, std::size_t count, const std::string& name) {
  if (count != 0) require(given, name);
  std::vector<Endpoint> endpoints;
  for (const char* text : std::span(given, count)) {
    endpoints.push_back(endpoint_of(text, name + "[" + std::to_string(endpoints.size()) + "]"));
  }
  return endpoints;
}

void add_endpoints(const deltawire_session_options& given, MeshOptions& mesh) {
  mesh.endpoints = endpoints_of(given.endpoints, static_cast<std::size_t>(mesh.world_size), "endpoints");
}

void add_rendezvous(const deltawire_session_options& given, const char* rendezvous, MeshOptions& mesh) {
  if (given.endpoints != nullptr) {
    refuse(
        "both endpoints and a rendezvous were given; leave endpoints NULL, or call "
        "deltawire_session_open");
  }
  mesh.rendezvous = endpoint_of(rendezvous, "rendezvous");
}

std::chrono::milliseconds milliseconds_of(std::int64_t count, std::string_view name) {
  if (count >= 1 && count <= kDay) return std::chrono::milliseconds(count);
  refuse(std::string(name) + " is " + std::to_string(count) + "; it can be 1 to 86,400,000");
}

}  // namespace deltawire::c
