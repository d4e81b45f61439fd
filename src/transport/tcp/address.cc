#include "transport/tcp/address.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <thread>

#include <ifaddrs.h>
#include <netdb.h>

#include "base/errors.h"
#include "base/spec_text.h"

namespace deltawire {

void SocketAddress::assign(const sockaddr* address, socklen_t length) noexcept {
  std::memcpy(&storage_, address, length);
  length_ = length;
}

Result<SocketAddress> SocketAddress::resolve(const std::string& host, std::uint16_t port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return invalid("no such address: \"" + host + "\" (" + ::gai_strerror(error) + ")");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  SocketAddress address;
  address.assign(found->ai_addr, found->ai_addrlen);
  return address;
}

Result<SocketAddress> SocketAddress::from_numeric(const std::string& host, std::uint16_t port) {
  if (host.empty()) return invalid("no such address: the host is empty");
  return resolve(host, port, AI_NUMERICHOST);
}

Result<SocketAddress> SocketAddress::from_host(const std::string& host, std::uint16_t port) {
  if (host.empty()) return invalid("no such address: the host is empty");
  return resolve(host, port, 0);
}

// The first IPv4 address, or else the first IPv6 address; length() is 0 if the interface has none.
SocketAddress SocketAddress::of_interface(const std::string& name, std::uint16_t port) {
  ifaddrs* all = nullptr;
  SocketAddress address;
  if (::getifaddrs(&all) != 0) return address;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family || name != one->ifa_name) continue;
      address.assign(one->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      if (family == AF_INET) {
        reinterpret_cast<sockaddr_in*>(&address.storage_)->sin_port = htons(port);
      } else {
        reinterpret_cast<sockaddr_in6*>(&address.storage_)->sin6_port = htons(port);
      }
      return address;
    }
  }
  return address;
}

Result<SocketAddress> SocketAddress::from_this_machine(const std::string& host, std::uint16_t port) {
  Result<SocketAddress> numeric = from_numeric(host, port);
  if (numeric) return numeric;
  if (SocketAddress of = of_interface(host, port); of.length() > 0) return of;
  return numeric;
}

Result<SocketAddress> SocketAddress::from_local_name(const std::string& host, std::uint16_t port) {
  if (Result<SocketAddress> here = from_this_machine(host, port)) return here;
  Result<SocketAddress> named = from_host(host, port);
  if (named) return named;
  return invalid("\"" + host +
                 "\" is neither an address, nor a name, nor a network interface of this machine");
}

template <auto kGetName>
Result<SocketAddress> SocketAddress::of(int fd, const char* call) {
  SocketAddress address;
  address.length_ = sizeof address.storage_;
  if (kGetName(fd, reinterpret_cast<sockaddr*>(&address.storage_), &address.length_) != 0) {
    return fail(ErrorCode::kSystem, call + (": " + os_error_text(errno)));
  }
  return address;
}

Result<SocketAddress> SocketAddress::of_socket(int fd) {
  return of<::getsockname>(fd, "getsockname");
}

Result<SocketAddress> SocketAddress::of_peer(int fd) {
  return of<::getpeername>(fd, "getpeername");
}

bool SocketAddress::has_host_of(const SocketAddress& other) const noexcept {
  if (family() != other.family()) return false;
  if (family() == AF_INET) return v4().s_addr == other.v4().s_addr;
  return family() == AF_INET6 && std::memcmp(&v6(), &other.v6(), sizeof(in6_addr)) == 0;
}

bool SocketAddress::is_unspecified() const noexcept {
  if (family() == AF_INET) return v4().s_addr == htonl(INADDR_ANY);
  return family() == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&v6()) != 0;
}

bool SocketAddress::is_loopback() const noexcept {
  if (family() == AF_INET) return ntohl(v4().s_addr) >> 24 == IN_LOOPBACKNET;
  return family() == AF_INET6 && (IN6_IS_ADDR_LOOPBACK(&v6()) != 0 ||
                                  (IN6_IS_ADDR_V4MAPPED(&v6()) != 0 && v6().s6_addr[12] == IN_LOOPBACKNET));
}

bool stays_on_this_machine(int fd) noexcept {
  const Result<SocketAddress> own = SocketAddress::of_socket(fd);
  const Result<SocketAddress> other = SocketAddress::of_peer(fd);
  return own && other && (!other->is_internet() || other->is_loopback() || own->has_host_of(*other));
}

Endpoint SocketAddress::endpoint() const {
  if (!is_internet()) return {};
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> service{};
  const int error = ::getnameinfo(get(), length_, host.data(), host.size(), service.data(), service.size(),
                                  NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) return {};
  return {host.data(), static_cast<std::uint16_t>(std::stoi(service.data()))};
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const std::string_view port = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  std::string_view host = text.substr(0, std::min(colon, text.size()));
  const bool has_brackets = host.size() >= 2 && host.starts_with('[') && host.ends_with(']');
  if (has_brackets) host = host.substr(1, host.size() - 2);
  const bool has_odd_host = std::ranges::any_of(host, [&](char letter) {
    return letter == '[' || letter == ']' || letter == '\0' || (letter == ':' && !has_brackets);
  });
  const Endpoint endpoint{std::string(host), parse_number<std::uint16_t>(port).value_or(0)};
  if (host.empty() || has_odd_host || endpoint.port == 0) {
    return invalid("\"" + std::string(text) +
                   "\" is not HOST:PORT; write it as 10.0.0.1:29600, node1:29600 or [fd00::1]:29600");
  }
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  const bool colons = endpoint.host.find(':') != std::string::npos;
  const std::string name = printable_line(endpoint.host);
  const std::string host = colons ? "[" + name + "]" : name;
  return host + ":" + std::to_string(endpoint.port);
}

NameLookup::NameLookup(const Endpoint& endpoint) {
  if (auto numeric = SocketAddress::from_numeric(endpoint.host, endpoint.port)) {
    const MutexLock lock(shared_->mutex);
    shared_->answer = *numeric;
    return;
  }
  const auto look = [shared = shared_, endpoint] {
    auto found = SocketAddress::from_host(endpoint.host, endpoint.port);
    const MutexLock lock(shared->mutex);
    shared->answer = std::move(found);
  };
  try {
    std::thread(look).detach();  // nobody can end it sooner than the resolver does
  } catch (const std::system_error&) {
    look();  // no thread is left
  }
}

std::optional<Result<SocketAddress>> NameLookup::answer() const {
  const MutexLock lock(shared_->mutex);
  return shared_->answer;
}

Result<SocketAddress> look_up_until(const Endpoint& endpoint, Deadline deadline,
                                    const std::function<bool()>& interrupted) {
  constexpr std::chrono::milliseconds kRetryPause{300};
  NameLookup lookup(endpoint);
  Deadline again = Deadline::max();
  Error last{ErrorCode::kInvalidArgument, "no such address: \"" + endpoint.host + "\" (no answer)"};
  while (true) {
    if (const auto found = lookup.answer(); found && again == Deadline::max()) {
      if (*found) return *found;
      last = found->error();
      again = Clock::now() + kRetryPause;
    }
    const Deadline now = Clock::now();
    if (now >= deadline) return tl::unexpected<Error>(last);
    if (interrupted && interrupted()) {
      return fail(ErrorCode::kAborted, "interrupted while \"" + endpoint.host + "\" was looked up");
    }
    if (now >= again) {
      lookup = NameLookup(endpoint);
      again = Deadline::max();
    }
    std::this_thread::sleep_for(NameLookup::kPause);
  }
}

}  // namespace deltawire
