// Socket addresses, in the kernel's form and as text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <netinet/in.h>
#include <sys/socket.h>

#include "base/mutex.h"
#include "deltawire/connect.h"

namespace deltawire {

class SocketAddress {
 public:
  SocketAddress() noexcept = default;

  // A numeric address, with a scope ("fe80::1%eth0") where IPv6 needs one. kInvalidArgument otherwise.
  static Result<SocketAddress> from_numeric(const std::string& host, std::uint16_t port);
  // A numeric address, or the name of a network interface of this machine; in this order.
  static Result<SocketAddress> from_this_machine(const std::string& host, std::uint16_t port);
  // A numeric address, the name of a network interface of this machine, or a host name; tried in this order.
  static Result<SocketAddress> from_local_name(const std::string& host, std::uint16_t port);
  // A numeric address or a host name.
  static Result<SocketAddress> from_host(const std::string& host, std::uint16_t port);
  // The local address of a bound socket.
  static Result<SocketAddress> of_socket(int fd);
  // The address at the other end of a connected socket.
  static Result<SocketAddress> of_peer(int fd);

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t length() const noexcept { return length_; }
  int family() const noexcept { return storage_.ss_family; }
  // Empty if it is no internet address.
  Endpoint endpoint() const;
  // Whether both have the same family and host; the ports may differ.
  bool has_host_of(const SocketAddress& other) const noexcept;
  // "0.0.0.0" or "::": one can listen on it, on all addresses, but not connect to it.
  bool is_unspecified() const noexcept;
  // 127.0.0.0/8, also mapped to IPv6, or ::1.
  bool is_loopback() const noexcept;
  // Whether it is an IPv4 or IPv6 address.
  bool is_internet() const noexcept { return family() == AF_INET || family() == AF_INET6; }

 private:
  static Result<SocketAddress> resolve(const std::string& host, std::uint16_t port, int flags);
  static SocketAddress of_interface(const std::string& name, std::uint16_t port);
  template <auto kGetName>
  static Result<SocketAddress> of(int fd, const char* call);
  void assign(const sockaddr* address, socklen_t length) noexcept;
  const in_addr& v4() const noexcept { return reinterpret_cast<const sockaddr_in*>(get())->sin_addr; }
  const in6_addr& v6() const noexcept { return reinterpret_cast<const sockaddr_in6*>(get())->sin6_addr; }

  sockaddr_storage storage_{};
  socklen_t length_ = 0;
};

// Whether the connection of that socket can't leave this machine: its other end is loopback, has the address
// of this end, or is no IP address at all. False if the addresses are unknown.
bool stays_on_this_machine(int fd) noexcept;

// A host's address, looked up without keeping the caller waiting: a name server that is silent takes longer
// than a rank may. A numeric host is known at once.
//
// Thread rule: one thread.
class NameLookup {
 public:
  // How often to ask for the answer.
  static constexpr std::chrono::milliseconds kPause{20};

  explicit NameLookup(const Endpoint& endpoint);

  // Nothing while it is being looked up. kInvalidArgument: the name has no address now.
  std::optional<Result<SocketAddress>> answer() const;

 private:
  struct Shared {
    Mutex mutex;
    std::optional<Result<SocketAddress>> answer DELTAWIRE_GUARDED_BY(mutex);
  };

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

// The address of a host, whose name is looked up again until it has one. kInvalidArgument: it has none at
// `deadline`. kAborted: `interrupted`, which may be empty, has returned true.
Result<SocketAddress> look_up_until(const Endpoint& endpoint, Deadline deadline,
                                    const std::function<bool()>& interrupted);

}  // namespace deltawire
