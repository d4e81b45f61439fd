// Sessions over TCP through the C interface.
#include "c_session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "call.h"
#include "deltawire/session.h"

using namespace deltawire;     // NOLINT(google-build-using-namespace)
using namespace deltawire::c;  // NOLINT(google-build-using-namespace)

struct deltawire_session {
  std::unique_ptr<Session> session;
  std::string spec;
};

namespace {

std::unique_ptr<Listener> take_listener(deltawire_listener* given, const MeshOptions& mesh) {
  if (given != nullptr) return consume(*given);
  if (mesh.rendezvous) {
    return value_of(listen_for(*mesh.rendezvous, mesh.rank, {}, {}, mesh.connect_timeout));
  }
  const Endpoint& own = mesh.endpoints[static_cast<std::size_t>(mesh.rank)];
  return value_of(listen_tcp(own.host, own.port));
}

// `find` adds the endpoints or the rendezvous to the options.
template <typename Find>
std::unique_ptr<Session> open(const std::string& spec, const deltawire_session_options& given,
                              const Find& find, deltawire_listener* listener) {
  SessionOptions options = session_options(given);
  find(options.mesh);
  (void)value_of(agreed_settings(spec, options.reducer));  // before a port is taken
  const Deadline begun = Clock::now();
  auto taken = take_listener(listener, options.mesh);
  // Whole seconds, of a name that was looked up: errors shall have the caller's number otherwise.
  const auto took = std::chrono::floor<std::chrono::seconds>(Clock::now() - begun);
  std::chrono::milliseconds& time = options.mesh.connect_timeout;
  if (took.count() > 0) time = std::max<std::chrono::milliseconds>(time - took, std::chrono::milliseconds(1));
  return value_of(Session::connect(spec, options.reducer, std::move(taken), options.mesh));
}

template <typename Find>
void open_into(deltawire_session** session, const char* spec, const deltawire_session_options* options,
               const Find& find, deltawire_listener* listener) {
  require(session, "session");
  *session = nullptr;
  require(spec, "spec");
  require(options, "options");
  auto opened = open(spec, *options, find, listener);
  std::string canonical = opened->spec();
  *session = new deltawire_session{std::move(opened), std::move(canonical)};
}

Step step_of(const deltawire_step* given) {
  require(given, "the step");
  if (given->reserved != 0) refuse("the step's reserved is not 0");
  const bool last = flag(given->last, "last");
  check_scale(given->scale, "the step's scale");
  return {given->number, given->bucket, last, given->scale};
}

}  // namespace

namespace deltawire::c {

std::unique_ptr<Listener> consume(deltawire_listener& given) {
  if (given.listener != nullptr) return std::move(given.listener);
  refuse("this listener was used by another session; open a new one", ErrorCode::kState);
}

void check_scale(float scale, std::string_view whose) {
  if (std::isfinite(scale) && scale > 0) return;
  refuse(std::string(whose) + " is " + std::to_string(scale) + "; it must be finite and above 0");
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
  return call(error, [&] {
    require(listener, "listener");
    *listener = nullptr;
    require(host, "host");
    auto opened = value_of(listen_tcp(host, PortRange{first_port, last_port}));
    std::string endpoint = to_string(opened->endpoint());
    *listener = new deltawire_listener{std::move(opened), std::move(endpoint)};
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
  return call(error, [&] {
    init(options, abi_version, "deltawire_session_options_init");
    const MeshOptions mesh;
    const ReducerOptions reducer;
    options->connect_timeout_ms = mesh.connect_timeout.count();
    options->min_elements = reducer.policy.min_elements;
  });
}

std::int32_t deltawire_session_open(const char* spec, const deltawire_session_options* options,
                                    deltawire_listener* listener, deltawire_session** session,
                                    deltawire_error* error) {
  const auto find = [&](MeshOptions& mesh) { return add_endpoints(*options, mesh); };
  return call(error, [&] { return open_into(session, spec, options, find, listener); });
}

std::int32_t deltawire_session_meet(const char* spec, const deltawire_session_options* options,
                                    const char* rendezvous, deltawire_listener* listener,
                                    deltawire_session** session, deltawire_error* error) {
  const auto find = [&](MeshOptions& mesh) { return add_rendezvous(*options, rendezvous, mesh); };
  return call(error, [&] { return open_into(session, spec, options, find, listener); });
}

std::int32_t deltawire_session_options_set_encryption(deltawire_session_options* options,
                                                      const char* encryption, deltawire_error* error) {
  return call(error, [&] {
    require(options, "options");
    require(encryption, "encryption");
    options->reserved[0] = static_cast<std::uint64_t>(value_of(parse_encryption(encryption)));
  });
}

std::int32_t deltawire_token_of(const void* secret, std::uint64_t secret_bytes, std::uint8_t* token,
                                deltawire_error* error) {
  return call(error, [&] {
    const Bytes bytes = bytes_at(secret, secret_bytes, "secret");
    require(token, "token");
    const Token made = value_of(token_of(bytes));
    std::memcpy(token, made.data(), made.size());
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
  return call(error, [&] {
    require(session, "the session");
    const std::vector<Named> named = named_tensors(tensors, tensor_count);
    const Step place = step_of(step);
    const auto timeout = milliseconds_of(timeout_ms, "timeout_ms");
    const Report done = value_of(session->session->all_reduce(named, place, timeout));
    if (report != nullptr) *report = report_of(done);
  });
}

std::int32_t deltawire_session_usage(const deltawire_session* session, deltawire_usage* usage,
                                     deltawire_error* error) {
  return call(error, [&] {
    require(session, "the session");
    require(usage, "usage");
    const Traffic traffic = session->session->traffic();
    const Memory memory = session->session->memory();
    *usage = {};
    usage->bytes_sent = traffic.bytes_sent;
    usage->bytes_received = traffic.bytes_received;
    usage->residual_bytes = memory.residual_bytes;
    usage->staging_bytes = memory.staging_bytes;
    usage->message_bytes = memory.message_bytes;
    usage->peak_bytes = memory.peak_bytes;
  });
}

std::int32_t deltawire_session_save(deltawire_session* session, deltawire_bytes** state,
                                    deltawire_error* error) {
  return call(error, [&] {
    require(state, "state");
    *state = nullptr;
    require(session, "the session");
    *state = new deltawire_bytes{value_of(session->session->save())};
  });
}

std::int32_t deltawire_session_load(deltawire_session* session, const void* state, std::uint64_t state_bytes,
                                    deltawire_error* error) {
  return call(error, [&] {
    require(session, "the session");
    value_of(session->session->load(bytes_at(state, state_bytes, "state")));
  });
}

std::int32_t deltawire_session_abort(deltawire_session* session, const char* reason, deltawire_error* error) {
  return call(error, [&] {
    require(session, "the session");
    require(reason, "reason");
    session->session->abort(reason);
  });
}

}  // extern "C"
