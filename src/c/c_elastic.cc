// Elastic sessions through the C interface.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "c_session.h"
#include "call.h"
#include "deltawire/deltawire.h"
#include "deltawire/elastic.h"

using namespace deltawire;     // NOLINT(google-build-using-namespace)
using namespace deltawire::c;  // NOLINT(google-build-using-namespace)

struct deltawire_elastic {
  std::unique_ptr<ElasticSession> session;
};

namespace {

using State = std::vector<StateArray>;

// As NumPy calls them; it has no bfloat16, of which Python's members give the bits.
const char* kind_of(std::int32_t dtype) {
  if (dtype == DELTAWIRE_F32) return "<f4";
  return dtype == DELTAWIRE_F16 ? "<f2" : "<u2";
}

State state_of(const deltawire_elastic_options& given) {
  try {  // a process that joins is given all of them
    value_of(check_apart(named_tensors(given.state, given.state_count)));
  } catch (const Failure& failure) {
    refuse("the state: " + failure.error.message, failure.error.code);
  }
  State state;
  for (const deltawire_tensor& tensor : std::span(given.state, given.state_count)) {
    const std::uint32_t element_bytes = tensor.dtype == DELTAWIRE_F32 ? 4 : 2;
    const auto dims = std::span(tensor.dim_count == 0 ? &tensor.count : tensor.dims,
                                std::max<std::size_t>(tensor.dim_count, 1));
    state.push_back({.name = tensor.name,
                     .kind = kind_of(tensor.dtype),
                     .element_bytes = element_bytes,
                     .dims = {dims.begin(), dims.end()},
                     .bytes = {static_cast<const std::byte*>(tensor.values), tensor.count * element_bytes}});
  }
  return state;
}

// Writes what the other members gave to the caller's tensors, all or none.
void take_state(std::span<const StateArray> joined, const deltawire_elastic_options& given,
                const State& own) {
  const auto is_same = [](const StateArray& a, const StateArray& b) {
    return a.name == b.name && a.kind == b.kind && a.bytes.size() == b.bytes.size();
  };
  if (!std::ranges::equal(joined, own, is_same)) {
    refuse("the members' state has other tensors than this process's; give all the same, in one order",
           ErrorCode::kMismatch);
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (own[i].bytes.empty()) continue;
    std::memcpy(given.state[i].values, joined[i].bytes.data(), own[i].bytes.size());
  }
}

void check_fields(const deltawire_session_options& given, const deltawire_elastic_options& elastic) {
  check_abi_version(elastic.abi_version, "deltawire_elastic_options");
  if (std::ranges::any_of(elastic.reserved, [](std::uint64_t field) { return field != 0; })) {
    refuse("deltawire_elastic_options: reserved is not 0");
  }
  if (given.endpoints != nullptr || given.epoch != 0) {
    refuse("an elastic session has doors and counts its epochs; leave endpoints NULL and epoch 0");
  }
  if (given.world_size == 0 && given.rank != 0) {
    refuse("rank is " + std::to_string(given.rank) + "; a process that joins (world_size 0) gets one");
  }
}

ElasticOptions elastic_options(const deltawire_elastic_options& given, SessionOptions& session) {
  MeshOptions& mesh = session.mesh;
  ElasticOptions options;
  options.timeout = milliseconds_of(given.timeout_ms, "timeout_ms");
  options.doors = endpoints_of(given.doors, given.door_count, "doors");
  options.place = {mesh.rank, mesh.world_size};
  options.token = mesh.token;
  options.encryption = mesh.encryption;
  options.connect_timeout = mesh.connect_timeout;
  options.arrival_timeout = mesh.arrival_timeout.count() == 0 ? mesh.connect_timeout : mesh.arrival_timeout;
  options.settings = std::move(mesh.settings);
  if (given.at_least != 0) options.at_least = given.at_least;
  return options;
}

std::unique_ptr<ElasticSession> open_elastic(const char* spec, deltawire_session_options given,
                                             const deltawire_elastic_options& elastic,
                                             deltawire_listener* listener) {
  check_fields(given, elastic);
  const bool joins = given.world_size == 0;
  if (joins) given.world_size = 1;
  SessionOptions session = session_options(given);
  ElasticOptions options = elastic_options(elastic, session);
  if (joins) options.place.reset();
  const State state = state_of(elastic);
  if (!state.empty()) options.state = [state]() -> Result<State> { return state; };
  std::unique_ptr<Listener> door;
  if (listener != nullptr) door = consume(*listener);
  auto opened = value_of(ElasticSession::open(spec, session.reducer, std::move(options), std::move(door)));
  if (joins) {
    take_state(opened->joined_state().value_or(std::span<const StateArray>()), elastic, state);
  }
  return opened;
}

}  // namespace

extern "C" {

std::int32_t deltawire_elastic_options_init(deltawire_elastic_options* options, std::uint32_t abi_version,
                                            deltawire_error* error) {
  return call(error, [&] {
    init(options, abi_version, "deltawire_elastic_options_init");
    options->timeout_ms = ElasticOptions().timeout.count();
  });
}

std::int32_t deltawire_elastic_open(const char* spec, const deltawire_session_options* options,
                                    const deltawire_elastic_options* elastic, deltawire_listener* listener,
                                    deltawire_elastic** session, deltawire_error* error) {
  return call(error, [&] {
    require(session, "session");
    *session = nullptr;
    require(spec, "spec");
    require(options, "options");
    require(elastic, "elastic");
    *session = new deltawire_elastic{open_elastic(spec, *options, *elastic, listener)};
  });
}

void deltawire_elastic_close(deltawire_elastic* session) {
  delete session;
}

std::int32_t deltawire_elastic_all_reduce(deltawire_elastic* session, const deltawire_tensor* tensors,
                                          std::uint32_t tensor_count, float scale, deltawire_report* report,
                                          deltawire_error* error) {
  return call(error, [&] {
    require(session, "the session");
    const std::vector<Named> named = named_tensors(tensors, tensor_count);
    check_scale(scale, "scale");
    const Report done = value_of(session->session->all_reduce(named, {.scale = scale}));
    if (report != nullptr) *report = report_of(done);
  });
}

std::int32_t deltawire_elastic_rank(const deltawire_elastic* session) {
  return session == nullptr ? -1 : session->session->rank();
}

std::int32_t deltawire_elastic_world_size(const deltawire_elastic* session) {
  return session == nullptr ? 0 : session->session->world_size();
}

std::uint32_t deltawire_elastic_epoch(const deltawire_elastic* session) {
  return session == nullptr ? 0 : session->session->epoch();
}

std::uint64_t deltawire_elastic_steps(const deltawire_elastic* session) {
  return session == nullptr ? 0 : session->session->steps();
}

}  // extern "C"
