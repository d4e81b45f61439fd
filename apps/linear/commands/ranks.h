// Which rank of a training this process is, and how it connects to the others: alone, through processes that
// it starts, or through a rendezvous address.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "cli/outcome.h"
#include "deltawire/connect.h"
#include "deltawire/transport.h"
#include "linear/launcher.h"

namespace CLI {
class App;
}  // namespace CLI

namespace deltawire::linear {

// The processes that this one has forked; none in these themselves.
class WorkerProcesses {
 public:
  // Forks into `count` processes, of which this one is rank 0. The others return from here too, must end with
  // _exit(), and die with this process. Call it before starting any thread.
  static WorkerProcesses start(int count);
  WorkerProcesses(WorkerProcesses&& other) = default;  // leaves no process in `other`
  WorkerProcesses& operator=(WorkerProcesses&&) = delete;
  ~WorkerProcesses();  // waits a second for them, then kills them, as one may hang

  int rank() const noexcept { return rank_; }

  // The mesh of all ranks. Once. `settings`: MeshOptions::settings.
  std::unique_ptr<Transport> connect(const std::string& settings, std::chrono::milliseconds timeout);

 private:
  explicit WorkerProcesses(int count) : count_(count) {}

  int count_ = 1;
  int rank_ = 0;
  std::vector<pid_t> started_;
  std::unique_ptr<Listener> listener_;  // of rank 0, until they connect
  Endpoint rendezvous_;                 // where it listens
  Token token_{};
};

struct RankOptions {
  int workers = 1;
  std::string rendezvous;  // "host:port"; empty: processes on this machine
  std::optional<int> rank;
  std::optional<int> world;
  std::string token_file;  // 32 bytes or more, the same on all ranks
  std::string encryption;  // empty: auto
  std::string listen;      // an address or interface; empty: the one that faces the rendezvous
  std::string ports;       // "first-last"; empty: any
  double timeout_seconds = 60;

  std::chrono::milliseconds timeout() const {
    return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * timeout_seconds));
  }
};

// --workers, --rendezvous with its options, --timeout.
void add_rank_options(CLI::App* command, RankOptions& options);

class Ranks {
 public:
  // Determines this process's rank; with --workers it forks (WorkerProcesses::start). Call it before starting
  // any thread. Errors: contradictory options; a launcher that started several processes which could not
  // connect.
  static Ranks start(const RankOptions& options);

  // Whether this process was forked by rank 0, which reports errors for it.
  bool is_silent() const noexcept { return workers_ && workers_->rank() != 0; }

  // The mesh of all ranks. Once. `settings`: must be the same on all ranks (MeshOptions::settings).
  std::unique_ptr<Transport> connect(const std::string& settings) {
    if (!options_.rendezvous.empty()) return meet(settings);
    return workers_->connect(settings, options_.timeout());
  }

 private:
  explicit Ranks(const RankOptions& options) : options_(options) {}

  void place();
  void place_at_rendezvous();
  void refuse_launcher() const;
  std::unique_ptr<Transport> meet(const std::string& settings) const;

  RankOptions options_;
  std::optional<Launched> launched_;
  std::optional<WorkerProcesses> workers_;
  MeshOptions mesh_;  // with a rendezvous
  PortRange ports_;   // likewise
};

}  // namespace deltawire::linear
