#include "linear/commands/ranks.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>

#include <CLI/CLI.hpp>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/arrays/byte_source.h"
#include "cli/commands.h"

namespace deltawire::linear {

WorkerProcesses WorkerProcesses::start(int count) {
  WorkerProcesses self(count);
  if (count == 1) return self;
  if (getrandom(self.token_.data(), self.token_.size(), 0) != static_cast<ssize_t>(self.token_.size())) {
    throw cli::failed_system_call("workers", "cannot draw a token", errno);
  }
  self.listener_ = cli::value_or_failed(listen_tcp("127.0.0.1"));  // a forked process has it no more
  self.rendezvous_ = self.listener_->endpoint();
  const pid_t parent = getpid();
  for (int rank = 1; rank < count; ++rank) {
    const pid_t child = fork();
    if (child < 0) throw cli::failed_system_call("workers", "cannot start a process", errno);
    if (child == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(cli::kExitFailure);
      self.started_.clear();
      self.rank_ = rank;
      return self;
    }
    self.started_.push_back(child);
  }
  return self;
}

WorkerProcesses::~WorkerProcesses() {
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

std::unique_ptr<Transport> WorkerProcesses::connect(const std::string& settings,
                                                    std::chrono::milliseconds timeout) {
  if (count_ == 1) return std::move(cli::value_or_failed(connect_inproc(1)).front());
  auto listener = rank_ == 0 ? std::move(listener_) : cli::value_or_failed(listen_tcp("127.0.0.1"));
  MeshOptions mesh;
  mesh.rank = rank_;
  mesh.world_size = count_;
  mesh.settings = settings;
  mesh.connect_timeout = timeout;
  mesh.rendezvous = rendezvous_;
  mesh.token = token_;
  return cli::value_or_failed(connect_tcp(std::move(listener), mesh));
}

namespace {

constexpr int kWorkersMax = 256;

Token read_token(const std::string& path) {
  if (path.empty()) {
    throw cli::misused(
        "--rendezvous needs --token-file: a file of 32 bytes that only the job's ranks have; make "
        "it with 'head -c 32 /dev/urandom'");
  }
  const auto bytes = cli::read_input(path);
  const auto token = token_of(bytes);
  if (!token || bytes.size() < token->size()) {
    throw cli::failed(path + ": has fewer than 32 bytes; make it with 'head -c 32 /dev/urandom'");
  }
  return *token;
}

std::string described(const Launched& launched) {
  return launched.by + " started this process as rank " + std::to_string(launched.rank) + " of " +
         std::to_string(launched.world);
}

}  // namespace

void add_rank_options(CLI::App* command, RankOptions& options) {
  cli::add_value(*command, "--workers N", options.workers, "Processes on this machine")
      ->transform(cli::count_range(1, kWorkersMax));
  cli::add_value(*command, "--rendezvous HOST:PORT", options.rendezvous,
                 "Rank 0's address, where all ranks connect; you, or srun, start each rank");
  cli::add_value(*command, "--rank N", options.rank,
                 "Rank of this process, from 0; default: set by srun or mpirun");
  cli::add_value(*command, "--world N", options.world, "Number of ranks; default: set by srun or mpirun");
  cli::add_value(*command, "--token-file FILE", options.token_file,
                 "File of the job's secret: 32 bytes, the same on all ranks");
  cli::add_value(*command, "--encryption WHEN", options.encryption,
                 "Of connections: auto (the default: those that leave the machine), required or off");
  cli::add_value(*command, "--listen ADDRESS", options.listen,
                 "Address or interface of this rank; default: the one that faces the rendezvous");
  cli::add_value(*command, "--ports A-B", options.ports,
                 "Ports that ranks other than 0 may listen on, for firewalls");
  cli::add_value(*command, "--timeout S", options.timeout_seconds, "Seconds to wait for other ranks")
      ->check(cli::number_range(0.1, 86400));
}

Ranks Ranks::start(const RankOptions& options) {
  Ranks self(options);
  self.launched_ = find_launcher([](const char* name) { return std::getenv(name); });
  self.place();
  if (options.rendezvous.empty()) {
    self.workers_.emplace(WorkerProcesses::start(options.workers));
  }
  return self;
}

void Ranks::place() {
  if (!options_.rendezvous.empty()) return place_at_rendezvous();
  if (options_.rank || options_.world || !options_.token_file.empty() || !options_.encryption.empty() ||
      !options_.listen.empty() || !options_.ports.empty()) {
    throw cli::misused(
        "--rank, --world, --token-file, --encryption, --listen and --ports go with --rendezvous HOST:PORT");
  }
  // One process is not several, whoever started it.
  if (launched_ && launched_->world == 1) launched_.reset();
  if (launched_) refuse_launcher();
}

// Several processes that would each train alone, and write one model over another.
void Ranks::refuse_launcher() const {
  if (options_.workers > 1) {
    throw cli::misused(described(*launched_) + ", each with --workers " + std::to_string(options_.workers) +
                       "; leave --workers out");
  }
  throw cli::misused(
      described(*launched_) +
      ", and each would train alone; give all ranks --rendezvous HOST:PORT and --token-file FILE");
}

void Ranks::place_at_rendezvous() {
  if (options_.workers > 1) throw cli::misused("--workers and --rendezvous: take the one or the other");
  if (launched_) {
    if (!options_.rank) options_.rank = launched_->rank;
    if (!options_.world) options_.world = launched_->world;
  }
  if (!options_.rank || !options_.world) {
    throw cli::misused("--rendezvous needs --rank and --world, where neither srun nor mpirun says them");
  }
  mesh_.rank = *options_.rank;
  mesh_.world_size = *options_.world;
  if (mesh_.world_size < 1 || mesh_.rank < 0 || mesh_.rank >= mesh_.world_size) {
    throw cli::misused("--rank " + std::to_string(mesh_.rank) + " is not in a world of " +
                       std::to_string(mesh_.world_size) + "; ranks count from 0");
  }
  mesh_.rendezvous = cli::value_or_misused(parse_endpoint(options_.rendezvous), "--rendezvous: ");
  ports_ = cli::value_or_misused(parse_ports(options_.ports), "--ports: ");
  mesh_.token = read_token(options_.token_file);
  mesh_.encryption = cli::value_or_misused(
      parse_encryption(options_.encryption.empty() ? "auto" : options_.encryption), "--encryption: ");
}

std::unique_ptr<Transport> Ranks::meet(const std::string& settings) const {
  MeshOptions mesh = mesh_;
  mesh.settings = settings;
  mesh.connect_timeout = options_.timeout();
  const Deadline begun = Clock::now();
  auto listener = listen_for(*mesh.rendezvous, mesh.rank, ports_, options_.listen, mesh.connect_timeout);
  if (!listener) {
    const bool taken = listener.error().code == ErrorCode::kAddressInUse && mesh.rank == 0;
    throw cli::failed("rank " + std::to_string(mesh.rank) + " cannot listen: " + listener.error().text() +
                      (taken ? "; is there another rank 0?" : ""));
  }
  // Whole seconds, of a name that was looked up: errors shall have the user's number otherwise.
  const auto took = std::chrono::floor<std::chrono::seconds>(Clock::now() - begun);
  mesh.connect_timeout =
      std::max<std::chrono::milliseconds>(mesh.connect_timeout - took, std::chrono::milliseconds(1));
  return cli::value_or_failed(connect_tcp(*std::move(listener), mesh));
}

}  // namespace deltawire::linear
