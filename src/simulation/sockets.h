// The sockets of a simulation, over its network: what listens, dials and is connected. In a program that is
// linked with system_calls.cc the system's calls come here, so that the code with which ranks meet
// (src/transport/tcp/) runs as it is.
//
// Thread rule: one thread, from beginning to end.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <netinet/in.h>
#include <poll.h>
#include <sys/epoll.h>

#include "simulation/disks.h"
#include "simulation/network.h"

namespace deltawire::simulation {

std::string address_of(int machine);

class Sockets {
 public:
  // Processes r, r + M, ... run on machine r of M, whose address is 10.0.0.0 plus r + 1.
  static constexpr int kFirstDescriptor = 1 << 21;

  // REQUIRES: `network` has its paths between machines; the buffers of a stream take `buffer` bytes.
  Sockets(Scheduler& scheduler, Network& network, std::size_t buffer);
  ~Sockets();
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  // Those of the running simulation; nullptr: there is none.
  static Sockets* current() noexcept { return current_; }
  static bool owns(int fd) noexcept { return fd >= kFirstDescriptor && fd < Disks::kFirstDescriptor; }
  int machine_of(int process) noexcept { return process % network_.machines(); }

  // As the system's calls; where these can fail, -1 with errno set.
  int open(bool watches = false);
  int bind(int fd, const sockaddr_in& address) noexcept;
  int listen(int fd) noexcept;
  int accept(int fd) noexcept;
  int connect(int fd, const sockaddr_in& address);
  // SO_ERROR
  int error(int fd) noexcept { return at(fd).error; }
  int name(int fd, sockaddr* address, socklen_t* length) noexcept;
  int peer_name(int fd, sockaddr* address, socklen_t* length) noexcept;
  ssize_t send(int fd, std::span<const iovec> pieces) noexcept;
  ssize_t receive(int fd, MutBytes into, bool peeks) noexcept;
  std::size_t unread(int fd) noexcept;
  std::size_t unacknowledged(int fd) noexcept;
  void close(int fd) noexcept;
  int poll(std::span<pollfd> entries, int timeout_ms);
  int watch(int watcher, int fd, const epoll_event* event);                // null: no longer
  int watched(int watcher, std::span<epoll_event> events) const noexcept;  // without waiting

  // Called when a process begins to listen.
  void set_on_listen(std::function<void(int process)> action) { on_listen_ = std::move(action); }
  // Called when a process is about to send bytes on a connection, with the machine at the other end.
  void set_on_send(std::function<void(int process, int to, Bytes bytes)> action) {
    on_send_ = std::move(action);
  }
  // The process has died: its machine closes all that it had.
  void close_all(int process) noexcept;
  // Sockets that are not closed.
  std::size_t open_ends() const noexcept;

 private:
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
  int add(int process);
  void knock(int fd, Clock::duration pause);
  void answer(int fd, Clock::duration pause);
  void hear_answer(int fd, Clock::duration pause);
  short readiness(int fd) const noexcept;

  static inline constinit Sockets* current_ = nullptr;

  Scheduler& scheduler_;
  Network& network_;
  std::size_t buffer_;
  std::deque<Socket> sockets_;
  struct Ports {
    std::map<std::uint64_t, int> listeners{};  // by address and port
    std::map<int, std::uint16_t> last{};       // that was given, by machine

    int listener_at(const sockaddr_in& address) const noexcept;
  } ports_;
  std::function<void(int)> on_listen_;
  std::function<void(int, int, Bytes)> on_send_;
};

}  // namespace deltawire::simulation
