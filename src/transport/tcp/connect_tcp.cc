#include <string>

#include "base/environment.h"
#include "base/errors.h"
#include "deltawire/connect.h"
#include "transport/mesh/control_message.h"
#include "transport/tcp/bootstrap.h"
#include "transport/tcp/long_line.h"

namespace deltawire {
namespace {

Status check_options(const MeshOptions& options) {
  if (options.world_size < 1 || options.world_size > kWorldMax) {
    return invalid("connect_tcp: world_size must be 1 to " + std::to_string(kWorldMax) + ", not " +
                   std::to_string(options.world_size));
  }
  if (options.rank < 0 || options.rank >= options.world_size) {
    return invalid("connect_tcp: rank " + std::to_string(options.rank) + " is not in a world of " +
                   std::to_string(options.world_size));
  }
  if (options.rendezvous && !options.endpoints.empty()) {
    return invalid("connect_tcp: endpoints and a rendezvous were given; give only one of them");
  }
  if (!options.rendezvous && options.endpoints.size() != static_cast<std::size_t>(options.world_size)) {
    return invalid("connect_tcp: " + std::to_string(options.endpoints.size()) + " endpoints for a world of " +
                   std::to_string(options.world_size) + "; give one for each rank, including this one");
  }
  if (options.connect_timeout < std::chrono::milliseconds(1) ||
      options.connect_timeout > std::chrono::hours(24)) {
    return invalid("connect_tcp: connect_timeout must be 1 ms to 24 h, not " +
                   std::to_string(options.connect_timeout.count()) + " ms");
  }
  if (options.streams < 0 || options.streams > kStreamsMax) {
    return invalid("connect_tcp: streams must be 1 to " + std::to_string(kStreamsMax) +
                   ", or 0 for as many as the line asks for, not " + std::to_string(options.streams));
  }
  if (options.encryption == Encryption::kRequired && options.world_size > 1 && options.token == Token{}) {
    return invalid(
        "connect_tcp: encryption=\"required\" needs a token, and this one is all zeros; give every rank "
        "the same 32 random bytes (openssl rand 32)");
  }
  if (!options.names.fit(options.world_size)) {
    return invalid("connect_tcp: names.numbers are " + std::to_string(options.names.numbers.size()) +
                   " for a world of " + std::to_string(options.world_size) +
                   "; give each rank a number of its own, from 0, or none");
  }
  RETURN_IF_ERROR(check_settings("connect_tcp", options.settings));
  return check_link_options(options.link);
}

}  // namespace

Result<std::unique_ptr<Transport>> connect_tcp(std::unique_ptr<Listener> listener,
                                               const MeshOptions& options) {
  RETURN_IF_ERROR(check_options(options));
  if (dynamic_cast<TcpListener*>(listener.get()) == nullptr) {
    return invalid("connect_tcp: needs the listener that listen_tcp made");
  }
  std::unique_ptr<TcpListener> tcp(static_cast<TcpListener*>(listener.release()));
  ASSIGN_OR_RETURN(auto tls, TlsContext::make(options.token));
  EncryptionPolicy policy{options.encryption, std::move(tls)};
  ASSIGN_OR_RETURN(const bool may_share, is_switched_on("DELTAWIRE_SHARED_MEMORY"));
  ASSIGN_OR_RETURN(const bool asks_for_bbr, wants_bbr());
  ASSIGN_OR_RETURN(const int streams, wanted_streams());
  MeshOptions own = options;
  if (options.streams == 0) own.streams = streams;
  if (options.link.carrier) own.streams = 1;  // only lengths go there
  own.shared_memory = options.shared_memory && may_share;
  Result<Bootstrap::Met> met = Bootstrap(std::move(tcp), own, std::move(policy), asks_for_bbr).run();
  if (!met) {
    options.names.to_numbers(met.error());
    return forward_error(met);
  }
  if (asks_for_bbr) {
    const std::string refused = fit_long_lines(options.rank, met->sockets);
    if (!refused.empty() && options.notice) options.notice(refused);
  }
  for (const PeerSockets& peer : met->sockets) {
    if (peer.more.empty()) continue;
    keep_little_unsent(peer.data);
    for (const Connection& one : peer.more) keep_little_unsent(one);
  }
  auto mesh = make_mesh({options.rank, options.epoch, options.names}, std::move(met->sockets), options.link,
                        std::move(met->areas));
  if (mesh) (*mesh)->set_arrival_timeout(options.arrival_timeout);
  return mesh;
}

}  // namespace deltawire
