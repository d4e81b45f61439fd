// For tests: strangers, impostors, and somebody between a rank and the rank that it dials, who sees, changes
// and cuts what passes.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deltawire/connect.h"
#include "transport/process/fork_guard.h"
#include "transport/tcp/address.h"
#include "transport/tcp/handshake_testing.h"
#include "transport/tcp/listener.h"

namespace deltawire::test {

class Relay {
 public:
  // What passes on one connection. `upwards`: from the rank that dials. It may change the bytes, or answer
  // with its own in `back`; false cuts the connection.
  using Meddle = std::function<bool(int connection, bool upwards, std::vector<std::byte>& bytes,
                                    std::vector<std::byte>& back)>;

  Relay(const Endpoint& target, Meddle meddle) : meddle_(std::move(meddle)) {
    auto listener = listen_tcp("127.0.0.1");
    endpoint_ = (*listener)->endpoint();
    listener_ = std::move(*listener);
    target_ = *SocketAddress::from_numeric(target.host, target.port);
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    stops_ = true;
    thread_.join();
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  const Endpoint& endpoint() const noexcept { return endpoint_; }
  int connections() const noexcept { return connections_; }

 private:
  struct Line {
    GuardedFd dialer;
    GuardedFd target;
  };

  void run() {
    while (!stops_) {
      std::vector<pollfd> polls;
      static_cast<TcpListener&>(*listener_).add_interests(polls);
      const std::size_t first = polls.size();
      for (const Line& line : lines_) {
        polls.push_back({line.dialer.get(), POLLIN, 0});
        polls.push_back({line.target.get(), POLLIN, 0});
      }
      ::poll(polls.data(), polls.size(), 10);
      for (std::size_t i = 0; first + i < polls.size(); ++i) {
        if (polls[first + i].revents != 0) pass(static_cast<int>(i / 2), i % 2 == 0);
      }
      accept();
    }
  }
  void accept() {
    Line line;
    line.dialer = static_cast<TcpListener&>(*listener_).accept();
    if (!line.dialer) return;
    line.target = GuardedFd::open([&] { return ::socket(AF_INET, SOCK_STREAM, 0); });
    if (::connect(line.target.get(), target_.get(), target_.length()) != 0) line = {};
    lines_.push_back(std::move(line));
    ++connections_;
  }
  void pass(int connection, bool upwards) {
    Line& line = lines_[static_cast<std::size_t>(connection)];
    std::vector<std::byte> bytes(1 << 16);
    std::vector<std::byte> back;
    const ssize_t got = ::recv((upwards ? line.dialer : line.target).get(), bytes.data(), bytes.size(), 0);
    bytes.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
    if (got <= 0 || !meddle_(connection, upwards, bytes, back)) {
      line = {};
      return;
    }
    (void)!::send((upwards ? line.target : line.dialer).get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    (void)!::send((upwards ? line.dialer : line.target).get(), back.data(), back.size(), MSG_NOSIGNAL);
  }

  Meddle meddle_;
  std::unique_ptr<Listener> listener_;
  Endpoint endpoint_;
  SocketAddress target_;
  std::vector<Line> lines_;
  std::atomic<int> connections_ = 0;
  std::atomic<bool> stops_ = false;
  std::thread thread_;
};

// All of a handshake of a test that is a rank itself.
inline void complete(Handshake& handshake, int fd) {
  Exchange state = Exchange::kMore;
  const Deadline end = Clock::now() + std::chrono::seconds(30);
  while (state == Exchange::kMore && Clock::now() < end) state = advance_handshake(handshake, fd);
  EXPECT_EQ(state, Exchange::kDone);
}

// A plain connection to a rank's port, like a stranger's.
class Stranger {
 public:
  explicit Stranger(const Endpoint& endpoint) : Stranger(::socket(AF_INET, SOCK_STREAM, 0), endpoint) {}
  Stranger(int fd, const Endpoint& endpoint) : fd_(fd) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(endpoint.port);
    ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  // One that a rank has dialed.
  explicit Stranger(int listening_fd) : fd_(::accept(listening_fd, nullptr, nullptr)) { EXPECT_GE(fd_, 0); }
  Stranger(Stranger&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Stranger() {
    if (fd_ >= 0) ::close(fd_);
  }
  void say(Bytes bytes) const { (void)::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT); }
  // Receives until the other end hangs up, up to `most` bytes.
  std::vector<std::byte> hear(std::size_t most) const {
    std::vector<std::byte> bytes(most);
    std::size_t length = 0;
    while (length < most) {
      const ssize_t got = ::recv(fd_, bytes.data() + length, most - length, 0);
      if (got <= 0) break;
      length += static_cast<std::size_t>(got);
    }
    bytes.resize(length);
    return bytes;
  }
  bool was_hung_up_on() const { return hear(1).empty(); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

inline Claims claims_of(int rank, int peer, int world_size) {
  Claims claims;
  claims.rank = static_cast<std::uint32_t>(rank);
  claims.peer = static_cast<std::uint32_t>(peer);
  claims.world_size = static_cast<std::uint16_t>(world_size);
  return claims;
}

// Listens as rank 0 without the token, for rank 1 to dial.
struct Impostor {
  Impostor() : fd(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;  // a rank shall listen here afterwards
    (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(fd, 10), 0);
    socklen_t length = sizeof address;
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
    endpoint = {"127.0.0.1", ntohs(address.sin_port)};
  }
  ~Impostor() { ::close(fd); }
  int fd;
  Endpoint endpoint;
};

}  // namespace deltawire::test
