// Ranks of a training: processes on this machine that the command starts, or one of several that the user has
// started, each on its machine.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "cli/outcome.h"
#include "deltawire/connect.h"
#include "deltawire/transport.h"

namespace deltawire::cli {

struct RankOptions {
  int workers = 1;
  std::vector<std::string>
      peers;               // "host:port" of every rank, this one's too; empty: `workers` processes here
  int rank = 0;            // with peers
  std::string token_file;  // with peers: 32 bytes or more, the same on all ranks
  std::string settings;    // what must be alike on all ranks; MeshOptions::settings
  std::chrono::milliseconds timeout{60000};

  int world() const noexcept { return peers.empty() ? workers : static_cast<int>(peers.size()); }
};

// The processes that this one has started; none in those.
class WorkerProcesses {
 public:
  // Becomes `workers` processes, of which this one is rank 0. The others return from here, too, and end with
  // leave(). They die with this process. Call it before any thread is started.
  static Outcome<WorkerProcesses> start(const RankOptions& options);
  WorkerProcesses(WorkerProcesses&& other) noexcept;
  WorkerProcesses& operator=(WorkerProcesses&&) = delete;
  ~WorkerProcesses();  // waits for them a second, then ends them: one may be frozen

  int rank() const noexcept { return rank_; }

  // The mesh of all ranks. Once.
  Outcome<std::unique_ptr<Transport>> connect();

 private:
  explicit WorkerProcesses(const RankOptions& options) : options_(options), rank_(options.rank) {}

  MeshOptions own_mesh() const;
  Outcome<std::unique_ptr<Transport>> connect_here();
  Outcome<std::unique_ptr<Transport>> connect_peers();

  RankOptions options_;
  int rank_ = 0;
  std::vector<pid_t> started_;
  std::vector<int> ports_to_;  // of rank 0: pipes to the others
  std::vector<int> ports_from_;
  std::vector<std::byte> token_;
};

}  // namespace deltawire::cli
