#include "cli/train/worker_processes.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/input_file.h"
#include "deltawire/connect.h"

namespace deltawire::cli {
namespace {

using Pipe = std::array<int, 2>;

template <class T>
Outcome<T> outcome_of(Result<T> result) {
  if (!result) return failed(result.error().message);
  return *std::move(result);
}

bool send_port(int pipe, std::uint16_t port) {
  return write(pipe, &port, sizeof port) == sizeof port;
}

bool receive_port(int pipe, std::uint16_t& port, std::chrono::milliseconds timeout) {
  pollfd readable{pipe, POLLIN, 0};
  if (poll(&readable, 1, static_cast<int>(timeout.count())) != 1) return false;
  return read(pipe, &port, sizeof port) == sizeof port;
}

Outcome<Endpoint> parse_endpoint(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Endpoint endpoint;
  endpoint.host = text.substr(0, colon == std::string::npos ? 0 : colon);
  if (endpoint.host.starts_with("[") && endpoint.host.ends_with("]")) {
    endpoint.host = endpoint.host.substr(1, endpoint.host.size() - 2);
  }
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (endpoint.host.empty() || error != std::errc() || end != port.data() + port.size() ||
      endpoint.port == 0) {
    return misused("--peers: \"" + text + "\" is no ADDRESS:PORT, as in 10.0.0.1:7171 or [fd00::1]:7171");
  }
  return endpoint;
}

Outcome<Token> read_token(const std::string& path) {
  if (path.empty()) return misused("--peers needs --token-file: a file that only the job's ranks have");
  const auto bytes = read_input(path);
  if (!bytes) return tl::unexpected<Failure>(bytes.error());
  Token token{};
  if (bytes->size() < token.size()) {
    return failed(path + ": has fewer than 32 bytes; make it with 'head -c 32 /dev/urandom'");
  }
  std::copy_n(bytes->begin(), token.size(), token.begin());
  return token;
}

}  // namespace

Outcome<WorkerProcesses> WorkerProcesses::start(const RankOptions& options) {
  WorkerProcesses self(options);
  if (!options.peers.empty() || options.workers == 1) return self;
  self.rank_ = 0;
  signal(SIGPIPE, SIG_IGN);  // a worker that has ended is an error, not our end
  self.token_.resize(Token{}.size());
  if (getrandom(self.token_.data(), self.token_.size(), 0) != static_cast<ssize_t>(self.token_.size())) {
    return failed_system_call("workers", "cannot draw a token", errno);
  }
  for (int rank = 1; rank < options.workers; ++rank) {
    Pipe up{};
    Pipe down{};
    if (pipe2(up.data(), O_CLOEXEC) != 0 || pipe2(down.data(), O_CLOEXEC) != 0) {
      return failed_system_call("workers", "cannot make a pipe", errno);
    }
    const pid_t parent = getpid();
    const pid_t child = fork();
    if (child < 0) return failed_system_call("workers", "cannot start a process", errno);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(kExitFailure);
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
    : options_(std::move(other.options_)),
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

Outcome<std::unique_ptr<Transport>> WorkerProcesses::connect() {
  if (!options_.peers.empty()) return connect_peers();
  if (options_.workers > 1) return connect_here();
  auto alone = connect_inproc(1);
  if (!alone) return failed(alone.error().message);
  return std::move(alone->front());
}

MeshOptions WorkerProcesses::own_mesh() const {
  MeshOptions mesh;
  mesh.rank = rank_;
  mesh.world_size = options_.world();
  mesh.settings = options_.settings;
  mesh.connect_timeout = options_.timeout;
  return mesh;
}

// Every rank listens where the kernel likes; rank 0 hears all ports and tells them to all.
Outcome<std::unique_ptr<Transport>> WorkerProcesses::connect_here() {
  auto listener = listen_tcp("127.0.0.1");
  if (!listener) return failed(listener.error().message);
  std::vector<std::uint16_t> ports(static_cast<std::size_t>(options_.workers));
  ports[static_cast<std::size_t>(rank_)] = (*listener)->endpoint().port;
  bool told = true;
  if (rank_ == 0) {
    for (std::size_t i = 0; i < ports_from_.size() && told; ++i) {
      told = receive_port(ports_from_[i], ports[i + 1], options_.timeout);
    }
    for (const int pipe : ports_to_) {
      for (const std::uint16_t port : ports) told = told && send_port(pipe, port);
    }
  } else {
    told = send_port(ports_to_.front(), ports[static_cast<std::size_t>(rank_)]);
    for (std::uint16_t& port : ports)
      told = told && receive_port(ports_from_.front(), port, options_.timeout);
  }
  if (!told) return failed("a worker ended before training began; run with --workers 1 to see why");
  MeshOptions mesh = own_mesh();
  for (const std::uint16_t port : ports) mesh.endpoints.push_back({"127.0.0.1", port});
  std::ranges::copy(token_, mesh.token.begin());
  return outcome_of(connect_tcp(*std::move(listener), mesh));
}

Outcome<std::unique_ptr<Transport>> WorkerProcesses::connect_peers() {
  const int world = options_.world();
  if (rank_ >= world) {
    return misused("--rank " + std::to_string(rank_) + ": there are " + std::to_string(world) +
                   " --peers, counted from 0");
  }
  MeshOptions mesh = own_mesh();
  for (const std::string& peer : options_.peers) {
    auto endpoint = parse_endpoint(peer);
    if (!endpoint) return tl::unexpected<Failure>(endpoint.error());
    mesh.endpoints.push_back(*endpoint);
  }
  const auto token = read_token(options_.token_file);
  if (!token) return tl::unexpected<Failure>(token.error());
  mesh.token = *token;
  const Endpoint& own = mesh.endpoints[static_cast<std::size_t>(rank_)];
  auto listener = listen_tcp(own.host, own.port);
  if (!listener) return failed(listener.error().message);
  return outcome_of(connect_tcp(*std::move(listener), mesh));
}

}  // namespace deltawire::cli
