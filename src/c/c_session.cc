// Sessions over TCP through the C interface.
#include "c_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>

#include "call.h"
#include "deltawire/connect.h"
#include "deltawire/deltawire.h"
#include "deltawire/session.h"

using deltawire::ErrorCode;
using deltawire::forward_error;
using deltawire::Result;
using deltawire::Session;
using deltawire::Status;
using namespace deltawire::c;  // NOLINT(google-build-using-namespace)

struct deltawire_session {
  std::unique_ptr<Session> session;
  std::string spec;
};

namespace {

Status check_session(const deltawire_session* session) {
  return session == nullptr ? null_argument("the session") : Status{};
}

Result<std::unique_ptr<deltawire::Listener>> take_listener(deltawire_listener* given,
                                                           const deltawire::MeshOptions& mesh) {
  if (given == nullptr && mesh.rendezvous) {
    return deltawire::listen_for(*mesh.rendezvous, mesh.rank, {}, {}, mesh.connect_timeout);
  }
  if (given == nullptr) {
    const deltawire::Endpoint& own = mesh.endpoints[static_cast<std::size_t>(mesh.rank)];
    return deltawire::listen_tcp(own.host, own.port);
  }
  return consume(*given);
}

// `find` adds the endpoints or the rendezvous to the options.
template <typename Find>
Result<std::unique_ptr<Session>> open(const std::string& spec, const deltawire_session_options& given,
                                      const Find& find, deltawire_listener* listener) {
  auto options = session_options(given);
  if (!options) return forward_error(options);
  if (Status found = find(options->mesh); !found) return forward_error(found);
  const auto settings = deltawire::agreed_settings(spec, options->reducer);
  if (!settings) return forward_error(settings);  // before a port is taken
  const deltawire::Deadline begun = deltawire::Clock::now();
  auto taken = take_listener(listener, options->mesh);
  if (!taken) return forward_error(taken);
  // Whole seconds, of a name that was looked up: errors shall have the caller's number otherwise.
  const auto took = std::chrono::floor<std::chrono::seconds>(deltawire::Clock::now() - begun);
  std::chrono::milliseconds& time = options->mesh.connect_timeout;
  if (took.count() > 0) time = std::max<std::chrono::milliseconds>(time - took, std::chrono::milliseconds(1));
  return Session::connect(spec, options->reducer, std::move(*taken), options->mesh);
}

template <typename Find>
Status open_into(deltawire_session** session, const char* spec, const deltawire_session_options* options,
                 const Find& find, deltawire_listener* listener) {
  if (session == nullptr) return null_argument("session");
  *session = nullptr;
  if (spec == nullptr) return null_argument("spec");
  if (options == nullptr) return null_argument("options");
  auto opened = open(spec, *options, find, listener);
  if (!opened) return forward_error(opened);
  std::string canonical = (*opened)->spec();
  *session = new deltawire_session{std::move(*opened), std::move(canonical)};
  return {};
}

Result<deltawire::Step> step_of(const deltawire_step* given) {
  if (given == nullptr) return forward_error(null_argument("the step"));
  if (given->reserved != 0) {
    return deltawire::fail(ErrorCode::kInvalidArgument, "the step's reserved is not 0");
  }
  const auto last = flag(given->last, "last");
  if (!last) return forward_error(last);
  if (Status scale = check_scale(given->scale, "the step's scale"); !scale) return forward_error(scale);
  return deltawire::Step{given->number, given->bucket, *last, given->scale};
}

}  // namespace

namespace deltawire::c {

Result<std::unique_ptr<Listener>> consume(deltawire_listener& given) {
  if (given.listener != nullptr) return std::move(given.listener);
  return fail(ErrorCode::kState, "this listener was used by another session; open a new one");
}

Status check_scale(float scale, std::string_view whose) {
  if (std::isfinite(scale) && scale > 0) return {};
  return fail(ErrorCode::kInvalidArgument,
              std::string(whose) + " is " + std::to_string(scale) + "; it must be finite and above 0");
}

deltawire_report report_of(const Report& report) {
  deltawire_report out{};
  out.encode_seconds = report.encode_seconds;
  out.exchange_seconds = report.exchange_seconds;
  out.decode_seconds = report.decode_seconds;
  out.bytes_sent = report.bytes_sent;
  out.raw_bytes = report.raw_bytes;
  out.element_count = report.element_count;
  out.digest = report.digest;
  out.last_committed_step = report.last_committed_step;
  out.finite = report.finite ? 1 : 0;
  return out;
}

}  // namespace deltawire::c

extern "C" {

std::int32_t deltawire_listener_open(const char* host, std::uint16_t first_port, std::uint16_t last_port,
                                     deltawire_listener** listener, deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (listener == nullptr) return null_argument("listener");
    *listener = nullptr;
    if (host == nullptr) return null_argument("host");
    auto opened = deltawire::listen_tcp(host, deltawire::PortRange{first_port, last_port});
    if (!opened) return forward_error(opened);
    std::string endpoint = deltawire::to_string((*opened)->endpoint());
    *listener = new deltawire_listener{std::move(*opened), std::move(endpoint)};
    return {};
  });
}

const char* deltawire_listener_endpoint(const deltawire_listener* listener) {
  return listener == nullptr ? nullptr : listener->endpoint.c_str();
}

void deltawire_listener_close(deltawire_listener* listener) {
  delete listener;
}

std::int32_t deltawire_session_options_init(deltawire_session_options* options, std::uint32_t abi_version,
                                            deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (options == nullptr) return null_argument("options");
    if (Status version = check_abi_version(abi_version, "deltawire_session_options_init"); !version) {
      return version;
    }
    const deltawire::MeshOptions mesh;
    const deltawire::ReducerOptions reducer;
    *options = {};
    options->abi_version = abi_version;
    options->connect_timeout_ms = mesh.connect_timeout.count();
    options->min_elements = reducer.policy.min_elements;
    return {};
  });
}

std::int32_t deltawire_session_open(const char* spec, const deltawire_session_options* options,
                                    deltawire_listener* listener, deltawire_session** session,
                                    deltawire_error* error) {
  const auto find = [&](deltawire::MeshOptions& mesh) { return add_endpoints(*options, mesh); };
  return call(error, [&] { return open_into(session, spec, options, find, listener); });
}

std::int32_t deltawire_session_meet(const char* spec, const deltawire_session_options* options,
                                    const char* rendezvous, deltawire_listener* listener,
                                    deltawire_session** session, deltawire_error* error) {
  const auto find = [&](deltawire::MeshOptions& mesh) { return add_rendezvous(*options, rendezvous, mesh); };
  return call(error, [&] { return open_into(session, spec, options, find, listener); });
}

std::int32_t deltawire_session_options_set_encryption(deltawire_session_options* options,
                                                      const char* encryption, deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (options == nullptr) return null_argument("options");
    if (encryption == nullptr) return null_argument("encryption");
    const auto parsed = deltawire::parse_encryption(encryption);
    if (!parsed) return forward_error(parsed);
    options->reserved[0] = static_cast<std::uint64_t>(*parsed);
    return {};
  });
}

std::int32_t deltawire_token_of(const void* secret, std::uint64_t secret_bytes, std::uint8_t* token,
                                deltawire_error* error) {
  return call(error, [&]() -> Status {
    const auto bytes = bytes_at(secret, secret_bytes, "secret");
    if (!bytes) return forward_error(bytes);
    if (token == nullptr) return null_argument("token");
    const auto made = deltawire::token_of(*bytes);
    if (!made) return forward_error(made);
    std::memcpy(token, made->data(), made->size());
    return {};
  });
}

void deltawire_session_close(deltawire_session* session) {
  delete session;
}

const char* deltawire_session_spec(const deltawire_session* session) {
  return session == nullptr ? nullptr : session->spec.c_str();
}

std::int32_t deltawire_session_all_reduce(deltawire_session* session, const deltawire_tensor* tensors,
                                          std::uint32_t tensor_count, const deltawire_step* step,
                                          std::int64_t timeout_ms, deltawire_report* report,
                                          deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (Status status = check_session(session); !status) return status;
    const auto named = named_tensors(tensors, tensor_count);
    if (!named) return forward_error(named);
    const auto place = step_of(step);
    if (!place) return forward_error(place);
    const auto timeout = milliseconds_of(timeout_ms, "timeout_ms");
    if (!timeout) return forward_error(timeout);
    const auto done = session->session->all_reduce(*named, *place, *timeout);
    if (!done) return forward_error(done);
    if (report != nullptr) *report = report_of(*done);
    return {};
  });
}

std::int32_t deltawire_session_usage(const deltawire_session* session, deltawire_usage* usage,
                                     deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (Status status = check_session(session); !status) return status;
    if (usage == nullptr) return null_argument("usage");
    const deltawire::Traffic traffic = session->session->traffic();
    const deltawire::Memory memory = session->session->memory();
    *usage = {};
    usage->bytes_sent = traffic.bytes_sent;
    usage->bytes_received = traffic.bytes_received;
    usage->residual_bytes = memory.residual_bytes;
    usage->staging_bytes = memory.staging_bytes;
    usage->message_bytes = memory.message_bytes;
    usage->peak_bytes = memory.peak_bytes;
    return {};
  });
}

std::int32_t deltawire_session_save(deltawire_session* session, deltawire_bytes** state,
                                    deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (state == nullptr) return null_argument("state");
    *state = nullptr;
    if (Status status = check_session(session); !status) return status;
    auto saved = session->session->save();
    if (!saved) return forward_error(saved);
    *state = new deltawire_bytes{std::move(*saved)};
    return {};
  });
}

std::int32_t deltawire_session_load(deltawire_session* session, const void* state, std::uint64_t state_bytes,
                                    deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (Status status = check_session(session); !status) return status;
    const auto bytes = bytes_at(state, state_bytes, "state");
    if (!bytes) return forward_error(bytes);
    return session->session->load(*bytes);
  });
}

std::int32_t deltawire_session_abort(deltawire_session* session, const char* reason, deltawire_error* error) {
  return call(error, [&]() -> Status {
    if (Status status = check_session(session); !status) return status;
    if (reason == nullptr) return null_argument("reason");
    session->session->abort(reason);
    return {};
  });
}

}  // extern "C"
