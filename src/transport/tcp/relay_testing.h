// For tests: somebody between a rank and the rank that it dials, who sees, changes and cuts what passes.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "deltawire/connect.h"
#include "transport/process/fork_guard.h"
#include "transport/tcp/address.h"
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

}  // namespace deltawire::test
