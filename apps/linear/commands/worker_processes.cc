#include "linear/commands/worker_processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "deltawire/connect.h"

namespace deltawire::linear {
namespace {

using Pipe = std::array<int, 2>;

bool send_port(int pipe, std::uint16_t port) {
  return write(pipe, &port, sizeof port) == sizeof port;
}

bool receive_port(int pipe, std::uint16_t& port, std::chrono::milliseconds timeout) {
  pollfd readable{pipe, POLLIN, 0};
  if (poll(&readable, 1, static_cast<int>(timeout.count())) != 1) return false;
  return read(pipe, &port, sizeof port) == sizeof port;
}

}  // namespace

cli::Outcome<WorkerProcesses> WorkerProcesses::start(int count) {
  WorkerProcesses self(count);
  if (count == 1) return self;
  signal(SIGPIPE, SIG_IGN);  // a worker that has ended is an error, not our end
  self.token_.resize(Token{}.size());
  if (getrandom(self.token_.data(), self.token_.size(), 0) != static_cast<ssize_t>(self.token_.size())) {
    return cli::failed_system_call("workers", "cannot draw a token", errno);
  }
  for (int rank = 1; rank < count; ++rank) {
    Pipe up{};
    Pipe down{};
    if (pipe2(up.data(), O_CLOEXEC) != 0 || pipe2(down.data(), O_CLOEXEC) != 0) {
      return cli::failed_system_call("workers", "cannot make a pipe", errno);
    }
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) return cli::failed_system_call("workers", "cannot start a process", errno);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(cli::kExitFailure);
      for (const int other : self.ports_to_) close(other);
      for (const int other : self.ports_from_) close(other);
      close(up[0]);
      close(down[1]);
      self.started_.clear();
      self.rank_ = rank;
      self.ports_to_ = {up[1]};
      self.ports_from_ = {down[0]};
      return self;
    }
    close(up[1]);
    close(down[0]);
    self.started_.push_back(child);
    self.ports_to_.push_back(down[1]);
    self.ports_from_.push_back(up[0]);
  }
  return self;
}

WorkerProcesses::WorkerProcesses(WorkerProcesses&& other) noexcept
    : count_(other.count_),
      rank_(other.rank_),
      started_(std::exchange(other.started_, {})),
      ports_to_(std::exchange(other.ports_to_, {})),
      ports_from_(std::exchange(other.ports_from_, {})),
      token_(std::move(other.token_)) {}

WorkerProcesses::~WorkerProcesses() {
  for (const int pipe : ports_to_) close(pipe);
  for (const int pipe : ports_from_) close(pipe);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  for (const pid_t child : started_) {
    while (waitpid(child, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        kill(child, SIGKILL);
        waitpid(child, nullptr, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
}

// Every rank listens on a port that the kernel chooses. Rank 0 collects all ports and sends them to all.
bool WorkerProcesses::exchange_ports(std::vector<std::uint16_t>& ports,
                                     std::chrono::milliseconds timeout) const {
  bool done = true;
  if (rank_ == 0) {
    for (std::size_t i = 0; i < ports_from_.size() && done; ++i) {
      done = receive_port(ports_from_[i], ports[i + 1], timeout);
    }
    for (const int pipe : ports_to_) {
      for (const std::uint16_t port : ports) done = done && send_port(pipe, port);
    }
  } else {
    done = send_port(ports_to_.front(), ports[static_cast<std::size_t>(rank_)]);
    for (std::uint16_t& port : ports) done = done && receive_port(ports_from_.front(), port, timeout);
  }
  return done;
}

cli::Outcome<std::unique_ptr<Transport>> WorkerProcesses::connect(const std::string& settings,
                                                                  std::chrono::milliseconds timeout) {
  if (count_ == 1) {
    auto alone = connect_inproc(1);
    if (!alone) return cli::failed(alone.error().text());
    return std::move(alone->front());
  }
  auto listener = listen_tcp("127.0.0.1");
  if (!listener) return cli::failed(listener.error().text());
  std::vector<std::uint16_t> ports(static_cast<std::size_t>(count_));
  ports[static_cast<std::size_t>(rank_)] = (*listener)->endpoint().port;
  if (!exchange_ports(ports, timeout)) {
    return cli::failed("a worker ended before training began; run with --workers 1 to see why");
  }
  MeshOptions mesh;
  mesh.rank = rank_;
  mesh.world_size = count_;
  mesh.settings = settings;
  mesh.connect_timeout = timeout;
  for (const std::uint16_t port : ports) mesh.endpoints.push_back({"127.0.0.1", port});
  std::ranges::copy(token_, mesh.token.begin());
  auto connected = connect_tcp(*std::move(listener), mesh);
  if (!connected) return cli::failed(connected.error().text());
  return *std::move(connected);
}

}  // namespace deltawire::linear
