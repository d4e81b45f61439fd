// Ranks as processes on this machine, forked by the command.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include "cli/outcome.h"
#include "deltawire/connect.h"
#include "deltawire/transport.h"

namespace deltawire::linear {

// The processes that this one has forked; none in these themselves.
class WorkerProcesses {
 public:
  // Forks into `count` processes, of which this one is rank 0. The others return from here too, must end with
  // _exit(), and die with this process. Call it before starting any thread.
  static cli::Outcome<WorkerProcesses> start(int count);
  WorkerProcesses(WorkerProcesses&& other) noexcept;
  WorkerProcesses& operator=(WorkerProcesses&&) = delete;
  ~WorkerProcesses();  // waits a second for them, then kills them, as one may hang

  int rank() const noexcept { return rank_; }

  // The mesh of all ranks. Once. `settings`: MeshOptions::settings.
  cli::Outcome<std::unique_ptr<Transport>> connect(const std::string& settings,
                                                   std::chrono::milliseconds timeout);

 private:
  explicit WorkerProcesses(int count) : count_(count) {}

  bool exchange_ports(std::vector<std::uint16_t>& ports, std::chrono::milliseconds timeout) const;

  int count_ = 1;
  int rank_ = 0;
  std::vector<pid_t> started_;
  std::vector<int> ports_to_;  // of rank 0: pipes to the others
  std::vector<int> ports_from_;
  std::vector<std::byte> token_;
};

}  // namespace deltawire::linear
