// Which rank of a training this process is, and how it meets the others: alone, by processes that it starts,
// at an address, or over MPI.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "cli/outcome.h"
#include "deltawire/connect.h"
#include "deltawire/transport.h"
#include "linear/commands/worker_processes.h"
#include "linear/launcher.h"

namespace CLI {
class App;
}  // namespace CLI

namespace deltawire::cli {

struct RankOptions {
  int workers = 1;
  std::string rendezvous;  // "host:port"; empty: processes of this machine, or MPI's
  std::optional<int> rank;
  std::optional<int> world;
  std::string token_file;  // 32 bytes or more, the same on all ranks
  std::string listen;      // an address or interface; empty: the one towards the rendezvous
  std::string ports;       // "first-last"; empty: any
  double timeout_seconds = 60;

  std::chrono::milliseconds timeout() const {
    return std::chrono::milliseconds(static_cast<std::int64_t>(1000 * timeout_seconds));
  }
};

// --workers, --rendezvous and what belongs to it, --timeout.
void add_rank_options(CLI::App* command, RankOptions& options);

class Ranks {
 public:
  // Finds out what this process is to be; with --workers it becomes several (WorkerProcesses::start). Call it
  // before any thread is started. Errors: options that can't be meant; a launcher that has started several
  // processes, none of which would know of the others.
  static Outcome<Ranks> start(const RankOptions& options);

  // Whether this process was started by another of this program, which says for it what went wrong.
  bool is_silent() const noexcept { return workers_ && workers_->rank() != 0; }

  // The mesh of all ranks. Once. `settings`: what must be alike on all of them; MeshOptions::settings.
  Outcome<std::unique_ptr<Transport>> connect(const std::string& settings);

 private:
  explicit Ranks(const RankOptions& options) : options_(options) {}

  Outcome<void> place();
  Outcome<void> place_at_rendezvous();
  Outcome<void> refuse_launcher() const;
  Outcome<std::unique_ptr<Transport>> meet(const std::string& settings) const;
  Outcome<std::unique_ptr<Transport>> join_mpi(const std::string& settings) const;

  RankOptions options_;
  std::optional<Launched> launched_;
  std::optional<WorkerProcesses> workers_;
  MeshOptions mesh_;  // with a rendezvous
  PortRange ports_;   // so, too
};

}  // namespace deltawire::cli
