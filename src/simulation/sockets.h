// The sockets of a simulation, over its network: what listens, dials and is connected. In a program that is
// linked with system_calls.cc the system's calls come here, so that the code with which ranks meet
// (src/transport/tcp/) runs as it is.
//
// Thread rule: one thread, from beginning to end.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>

#include "simulation/disks.h"
#include "simulation/network.h"

namespace deltawire::simulation {

inline constexpr in_addr_t kFirstAddress = 0x0A000001;

inline std::string address_of(int machine) {
  const in_addr address{htonl(kFirstAddress + static_cast<in_addr_t>(machine))};
  std::array<char, INET_ADDRSTRLEN> text{};
  return ::inet_ntop(AF_INET, &address, text.data(), text.size());
}

inline int machine_of(const sockaddr_in& address) noexcept {
  return static_cast<int>(ntohl(address.sin_addr.s_addr) - kFirstAddress);
}

inline int give(const sockaddr_in& from, sockaddr* to, socklen_t* length) noexcept {
  *reinterpret_cast<sockaddr_in*>(to) = from;
  *length = sizeof from;
  return 0;
}

class Sockets {
 public:
  // Processes r, r + M, ... run on machine r of M, whose address is 10.0.0.0 plus r + 1.
  static constexpr int kFirstDescriptor = 1 << 21;

  // REQUIRES: `network` has its paths between machines; the buffers of a stream take `buffer` bytes.
  Sockets(Scheduler& scheduler, Network& network, std::size_t buffer)
      : scheduler_(scheduler), network_(network), buffer_(buffer) {
    scheduler.set_readiness([this](int fd) { return owns(fd) ? readiness(fd) : short{0}; });
    current_ = this;
  }

  ~Sockets() { current_ = nullptr; }

  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  // Those of the running simulation; nullptr: there is none.
  static Sockets* current() noexcept { return current_; }
  static bool owns(int fd) noexcept { return fd >= kFirstDescriptor && fd < Disks::kFirstDescriptor; }
  int machine_of(int process) noexcept { return process % network_.machines(); }

  // As the system's calls; where these can fail, -1 with errno set. The registry of descriptors is locked in
  // calls that make and close some: no thread may be interrupted there.
  int open(bool watches = false) {
    const int fd = add(scheduler_.process());
    if (watches) at(fd).state = State::kWatches;
    return fd;
  }

  int bind(int fd, const sockaddr_in& address) noexcept {
    if (address.sin_port != 0 && ports_.listener_at(address) >= 0) return fail_with(EADDRINUSE);
    at(fd).own.sin_addr = address.sin_addr;
    if (address.sin_port != 0) at(fd).own.sin_port = address.sin_port;
    return 0;
  }

  int listen(int fd) noexcept {
    assert(at(fd).state == State::kNew);
    at(fd).state = State::kListens;
    ports_.listeners.emplace(Ports::place_of(at(fd).own), fd);
    if (const auto action = on_listen_) action(at(fd).process);  // a copy: it may set another one
    return 0;
  }

  int accept(int fd) noexcept {
    Socket& listener = at(fd);
    if (listener.backlog.empty()) return fail_with(EAGAIN);
    const int accepted = listener.backlog.front();
    listener.backlog.erase(listener.backlog.begin());
    return accepted;
  }

  int connect(int fd, const sockaddr_in& address) {
    assert(at(fd).state == State::kNew);
    Socket& socket = at(fd);
    socket.peer = address;
    socket.state = State::kDials;
    knock(fd, kFirstPause);
    scheduler_.called();
    return fail_with(EINPROGRESS);
  }

  // SO_ERROR
  int error(int fd) noexcept { return at(fd).error; }
  int name(int fd, sockaddr* address, socklen_t* length) noexcept {
    return give(at(fd).own, address, length);
  }

  int peer_name(int fd, sockaddr* address, socklen_t* length) noexcept {
    if (at(fd).state != State::kConnected) return fail_with(ENOTCONN);
    return give(at(fd).peer, address, length);
  }

  ssize_t send(int fd, std::span<const iovec> pieces) noexcept {
    if (const auto action = on_send_; action && at(fd).state == State::kConnected && !pieces.empty()) {
      action(at(fd).process, simulation::machine_of(at(fd).peer),
             {static_cast<const std::byte*>(pieces[0].iov_base), pieces[0].iov_len});
    }
    const IoResult sent =
        at(fd).state == State::kConnected ? network_.send(at(fd).end, pieces) : IoResult::closed();
    scheduler_.called();
    if (sent.kind == IoResult::Kind::kOk) return static_cast<ssize_t>(sent.bytes);
    return fail_with(sent.kind == IoResult::Kind::kWouldBlock ? EAGAIN : EPIPE);
  }

  ssize_t receive(int fd, MutBytes into, bool peeks) noexcept {
    const Socket& socket = at(fd);
    if (socket.state != State::kConnected) return fail_with(ENOTCONN);
    const bool is_reset = network_.is_reset(socket.end);
    const IoResult got = peeks ? network_.peek(socket.end, into) : network_.receive(socket.end, into);
    scheduler_.called();
    if (got.kind == IoResult::Kind::kOk) return static_cast<ssize_t>(got.bytes);
    if (got.kind == IoResult::Kind::kWouldBlock) return fail_with(EAGAIN);
    return is_reset ? fail_with(ECONNRESET) : 0;
  }

  std::size_t unread(int fd) noexcept { return at(fd).has_stream ? network_.unread(at(fd).end) : 0; }

  std::size_t unacknowledged(int fd) noexcept {
    return at(fd).has_stream ? network_.unacknowledged(at(fd).end) : 0;
  }

  void close(int fd) noexcept {
    Socket& socket = at(fd);
    const State before = std::exchange(socket.state, State::kClosed);
    if (before == State::kClosed) return;
    if (before == State::kListens) ports_.listeners.erase(Ports::place_of(socket.own));
    if (socket.has_stream) network_.close(socket.end);
    for (const int waiting : std::exchange(socket.backlog, {})) close(waiting);
    socket.watched.clear();
  }

  int poll(std::span<pollfd> entries, int timeout_ms) {
    const Deadline now = scheduler_.now();
    if (timeout_ms == 0) {
      for (pollfd& each : entries) {
        each.revents = owns(each.fd) ? static_cast<short>(readiness(each.fd) & each.events) : short{0};
      }
    } else {
      std::vector<pollfd> asked{{-1, 0, 0}};  // the place of a scheduler's event
      asked.insert(asked.end(), entries.begin(), entries.end());
      const auto time = std::chrono::milliseconds(timeout_ms);
      scheduler_.poll(this, asked, timeout_ms < 0 ? Deadline::max() : now + time);
      std::copy(asked.begin() + 1, asked.end(), entries.begin());
    }
    return static_cast<int>(
        std::ranges::count_if(entries, [](const pollfd& entry) { return entry.revents != 0; }));
  }

  // null: no longer
  int watch(int watcher, int fd, const epoll_event* event) {
    auto& watched = at(watcher).watched;
    if (at(fd).has_stream) network_.ends_[at(fd).end].watcher = event == nullptr ? -1 : watcher;
    if (event == nullptr) return watched.erase(fd) > 0 ? 0 : fail_with(ENOENT);
    return watched.emplace(fd, *event).second ? 0 : fail_with(EEXIST);
  }

  // without waiting
  int watched(int watcher, std::span<epoll_event> events) const noexcept {
    std::size_t found = 0;
    for (const auto& [fd, event] : at(watcher).watched) {
      const auto asked = event.events | EPOLLHUP | EPOLLERR;
      const auto ready = static_cast<std::uint32_t>(readiness(fd)) & asked;
      if (ready == 0 || found == events.size()) continue;
      events[found] = event;
      events[found++].events = ready;
    }
    return static_cast<int>(found);
  }

  // Called when a process begins to listen.
  void set_on_listen(std::function<void(int process)> action) { on_listen_ = std::move(action); }
  // Called when a process is about to send bytes on a connection, with the machine at the other end.
  void set_on_send(std::function<void(int process, int to, Bytes bytes)> action) {
    on_send_ = std::move(action);
  }
  // The process has died: its machine closes all that it had.
  void close_all(int process) noexcept {
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      if (sockets_[i].process == process) close(kFirstDescriptor + static_cast<int>(i));
    }
  }

  // Sockets that are not closed.
  std::size_t open_ends() const noexcept {
    return static_cast<std::size_t>(
        std::ranges::count_if(sockets_, [](const Socket& socket) { return socket.state != State::kClosed; }));
  }

 private:
  // A machine sends a request for a connection again after so long, then after twice as long.
  static constexpr std::chrono::seconds kFirstPause{1};
  static constexpr std::uint16_t kFirstPort = 40'000;

  enum class State : std::uint8_t { kNew, kListens, kDials, kConnected, kRefused, kWatches, kClosed };
  struct Socket {
    int process = 0;
    State state = State::kNew;
    int error = 0;
    sockaddr_in own{};
    sockaddr_in peer{};
    std::size_t end = 0;      // of its stream
    bool has_stream = false;  // before the dialer knows it
    std::vector<int> backlog{};
    std::map<int, epoll_event> watched{};
  };

  Socket& at(int fd) noexcept { return sockets_[static_cast<std::size_t>(fd - kFirstDescriptor)]; }
  const Socket& at(int fd) const noexcept {
    return sockets_[static_cast<std::size_t>(fd - kFirstDescriptor)];
  }
  int add(int process) {
    const int fd = kFirstDescriptor + static_cast<int>(sockets_.size());
    Socket& socket = sockets_.emplace_back();
    socket.process = process;
    socket.own.sin_family = AF_INET;
    socket.own.sin_addr.s_addr = htonl(kFirstAddress + static_cast<in_addr_t>(machine_of(process)));
    std::uint16_t& port = ports_.last[machine_of(process)];
    port = port < kFirstPort ? kFirstPort : static_cast<std::uint16_t>(port + 1);
    socket.own.sin_port = htons(port);
    return fd;
  }

  void knock(int fd, Clock::duration pause) {
    const int from = machine_of(at(fd).process);
    const int to = simulation::machine_of(at(fd).peer);
    scheduler_.after(network_.draw_time(from, to), [this, fd, pause, from, to] {
      if (at(fd).state != State::kDials) return;
      if (network_.path(from, to).is_up) return answer(fd, pause);
      scheduler_.after(pause, [this, fd, pause] { knock(fd, 2 * pause); });
    });
  }

  // The other machine takes the connection, whatever its process does.
  void answer(int fd, Clock::duration pause) {
    Socket& dialer = at(fd);
    const int listener = ports_.listener_at(dialer.peer);
    if (listener >= 0 && !dialer.has_stream) {
      const int process = at(listener).process;
      const int accepted = add(process);
      const auto [there, here] = network_.open_stream({machine_of(dialer.process), machine_of(process)},
                                                      {dialer.process, process}, {fd, accepted}, buffer_);
      Socket& socket = at(accepted);
      socket.state = State::kConnected;
      socket.own = dialer.peer;
      socket.peer = dialer.own;
      socket.end = here;
      dialer.end = there;
      socket.has_stream = dialer.has_stream = true;
      at(listener).backlog.push_back(accepted);
      scheduler_.on_ready(process, listener);
    }
    hear_answer(fd, pause);
  }

  void hear_answer(int fd, Clock::duration pause) {
    const int from = simulation::machine_of(at(fd).peer);
    const int to = machine_of(at(fd).process);
    scheduler_.after(network_.draw_time(from, to), [this, fd, pause, from, to] {
      Socket& dialer = at(fd);
      if (dialer.state != State::kDials) return;
      if (!network_.path(from, to).is_up) {
        return scheduler_.after(pause, [this, fd, pause] { knock(fd, 2 * pause); });
      }
      dialer.state = dialer.has_stream ? State::kConnected : State::kRefused;
      dialer.error = dialer.has_stream ? 0 : ECONNREFUSED;
      scheduler_.on_ready(dialer.process, fd);
    });
  }

  short readiness(int fd) const noexcept {
    const Socket& socket = at(fd);
    switch (socket.state) {
      case State::kNew:
      case State::kDials:
      case State::kClosed: return 0;  // closed: of a process that has died
      case State::kListens: return socket.backlog.empty() ? short{0} : short{POLLIN};
      case State::kConnected: return network_.readiness(socket.end);
      case State::kWatches: {
        std::array<epoll_event, 1> one{};
        return watched(fd, one) > 0 ? short{POLLIN} : short{0};
      }
      case State::kRefused: break;
    }
    return POLLIN | POLLOUT;
  }

  static inline constinit Sockets* current_ = nullptr;

  Scheduler& scheduler_;
  Network& network_;
  std::size_t buffer_;
  std::deque<Socket> sockets_;
  struct Ports {
    std::map<std::uint64_t, int> listeners{};  // by address and port
    std::map<int, std::uint16_t> last{};       // that was given, by machine

    static std::uint64_t place_of(const sockaddr_in& address) noexcept {
      return std::uint64_t{address.sin_addr.s_addr} << 16 | address.sin_port;
    }

    int listener_at(const sockaddr_in& address) const noexcept {
      const auto found = listeners.find(place_of(address));
      return found == listeners.end() ? -1 : found->second;
    }
  } ports_;
  std::function<void(int)> on_listen_;
  std::function<void(int, int, Bytes)> on_send_;
};

}  // namespace deltawire::simulation
