#include "transport/tcp/listener.h"

#include <cerrno>
#include <charconv>
#include <thread>

#include "base/environment.h"
#include "base/errors.h"
#include "transport/tcp/address.h"
#include "transport/tcp/local_socket.h"

namespace deltawire {
namespace {

constexpr int kBacklog = 1024;
constexpr std::chrono::milliseconds kListenAgain{300};

tl::unexpected<Error> refusal(const SocketAddress& address, int error) {
  const std::string at = to_string(address.endpoint());
  if (error == EADDRINUSE) {
    return fail(ErrorCode::kAddressInUse,
                at + " is taken by another program; choose another port, or 0 for any free one");
  }
  if (error == EADDRNOTAVAIL) {
    return invalid(at + " is not an address of this machine; see \"ip addr\"");
  }
  return fail(ErrorCode::kSystem, "can't listen on " + at + ": " + os_error_text(error));
}

GuardedFd accept_from(const GuardedFd& listening) {
  return GuardedFd::open(
      [&] { return ::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
}

}  // namespace

GuardedFd TcpListener::accept() const {
  if (local_) {
    GuardedFd socket = accept_from(local_);
    if (socket || (errno != EAGAIN && errno != EWOULDBLOCK)) return socket;
  }
  return accept_from(socket_);
}

Result<std::unique_ptr<Listener>> listen_tcp(const std::string& host, std::uint16_t port) {
  ASSIGN_OR_RETURN(const SocketAddress address, SocketAddress::from_local_name(host, port));
  GuardedFd socket = GuardedFd::open(
      [&] { return ::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (!socket) return refusal(address, errno);
  // A restarted job must not wait until the kernel has forgotten the old connections of its port.
  const int on = 1;
  (void)::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(socket.get(), address.get(), address.length()) != 0) return refusal(address, errno);
  ASSIGN_OR_RETURN(const SocketAddress bound, SocketAddress::of_socket(socket.get()));
  // First the local socket: whoever finds this port open finds that one, too.
  ASSIGN_OR_RETURN(GuardedFd local, listen_locally(bound, kBacklog));
  if (::listen(socket.get(), kBacklog) != 0) return refusal(address, errno);
  return std::make_unique<TcpListener>(std::move(socket), std::move(local), bound.endpoint());
}

Result<std::unique_ptr<Listener>> listen_tcp(const std::string& host, PortRange ports) {
  const std::string range = std::to_string(ports.first) + "-" + std::to_string(ports.last);
  const bool any = ports.first == 0 && ports.last == 0;
  if (!any && (ports.first == 0 || ports.last < ports.first)) {
    return invalid("listen_tcp: " + range + " is not a range of ports; write the lower one first, from 1 on");
  }
  for (std::uint32_t port = ports.first; port <= ports.last; ++port) {
    auto listener = listen_tcp(host, static_cast<std::uint16_t>(port));
    const bool taken = !listener && listener.error().code == ErrorCode::kAddressInUse;
    if (!taken || ports.first == ports.last) return listener;
  }
  return fail(ErrorCode::kAddressInUse,
              "all ports " + range + " of " + host +
                  " are taken by other programs or ranks; give a wider range, or 0 for any free one");
}

Result<PortRange> parse_ports(std::string_view text) {
  PortRange ports;
  const char* const end = text.data() + text.size();
  auto read = std::from_chars(text.data(), end, ports.first);
  ports.last = ports.first;
  const bool is_range = read.ec == std::errc() && read.ptr != end && *read.ptr == '-';
  if (is_range) read = std::from_chars(read.ptr + 1, end, ports.last);
  const bool is_free = text.empty() || text == "0";
  const bool is_whole = read.ec == std::errc() && read.ptr == end && ports.first > 0;
  if (is_free || (is_whole && ports.first <= ports.last)) return ports;
  return invalid("\"" + std::string(text) + "\" is no range of ports; write it as 29600-29699, or 29600");
}

Result<std::string> local_address_towards(const std::string& host) {
  if (const std::string named(setting_of("DELTAWIRE_INTERFACE")); !named.empty()) {
    const Result<SocketAddress> address = SocketAddress::from_local_name(named, 0);
    if (!address) return fail_in("DELTAWIRE_INTERFACE: ", address.error());
    return address->endpoint().host;
  }
  // Connecting a datagram socket sends nothing; it only asks the routing table.
  const std::uint16_t any_port = 9;
  ASSIGN_OR_RETURN(const SocketAddress target, SocketAddress::from_host(host, any_port));
  const GuardedFd socket =
      GuardedFd::open([&] { return ::socket(target.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0); });
  if (!socket || ::connect(socket.get(), target.get(), target.length()) != 0) {
    return fail(ErrorCode::kSystem, "no route to " + host + ": " + os_error_text(errno));
  }
  ASSIGN_OR_RETURN(const SocketAddress local, SocketAddress::of_socket(socket.get()));
  return local.endpoint().host;
}

Result<std::unique_ptr<Listener>> listen_for(const Endpoint& rendezvous, int rank, PortRange ports,
                                             const std::string& given, std::chrono::milliseconds patience,
                                             const std::function<bool()>& interrupted) {
  const std::string interface(given.empty() ? setting_of("DELTAWIRE_INTERFACE") : given);
  if (!interface.empty()) {
    auto made = rank == 0 ? listen_tcp(interface, rendezvous.port) : listen_tcp(interface, ports);
    if (!made && given.empty()) return fail_in("DELTAWIRE_INTERFACE: ", made.error());
    return made;
  }
  if (rank == 0 && SocketAddress::from_this_machine(rendezvous.host, rendezvous.port)) {
    return listen_tcp(rendezvous.host, rendezvous.port);
  }
  const Deadline deadline = Clock::now() + patience;
  while (true) {
    const auto address = look_up_until(rendezvous, deadline, interrupted);
    if (!address) {
      return fail(address.error().code, address.error().message + "; rank " + std::to_string(rank) +
                                            " has looked it up for " + std::to_string(patience.count()) +
                                            " ms, as the address of rank 0");
    }
    const std::string host = address->endpoint().host;
    if (rank > 0) {
      ASSIGN_OR_RETURN(const std::string own, local_address_towards(host));
      return listen_tcp(own, ports);
    }
    auto listener = listen_tcp(host, rendezvous.port);
    // A name may still have the address of the machine on which rank 0 was before.
    const bool is_elsewhere = !listener && listener.error().code == ErrorCode::kInvalidArgument;
    if (!is_elsewhere || Clock::now() >= deadline) return listener;
    std::this_thread::sleep_for(kListenAgain);
  }
}

}  // namespace deltawire
