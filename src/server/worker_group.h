// The workers of a run: which of them were dropped, and how many pushes a step needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/result.h"
#include "deltawire/server.h"

namespace deltawire {

// Workers are numbered from 0; their ranks follow those of the servers.
class WorkerGroup {
 public:
  WorkerGroup(int workers, const ServerOptions& options)
      : is_dropped_(static_cast<std::size_t>(workers)),
        first_rank_(options.servers),
        backup_(static_cast<std::size_t>(options.backup)),
        min_workers_(static_cast<std::size_t>(options.min_workers)) {}

  std::size_t size() const noexcept { return is_dropped_.size(); }
  int rank_of(std::size_t worker) const noexcept { return first_rank_ + static_cast<int>(worker); }

  bool is_dropped(std::size_t worker) const noexcept { return is_dropped_[worker] != 0; }
  std::size_t left() const noexcept { return size() - dropped_.size(); }

  // How many pushes a step waits for: of all workers but the backup ones, or of all that are left.
  std::size_t needed() const noexcept;

  // For the first time. `step` is the one that continues without it.
  void drop(std::size_t worker, std::uint64_t step, const Error& why);
  std::span<const DroppedWorker> dropped() const noexcept { return dropped_; }

  // Why a step that has begun can't be ended: its last workers were lost, or have closed.
  tl::unexpected<Error> ended_amid_step() const;

  // kPeerLost, blaming the last loss, if fewer workers are left than ServerOptions::min_workers.
  Status check_left() const;

 private:
  std::vector<char> is_dropped_;  // by worker
  std::vector<DroppedWorker> dropped_;
  int first_rank_;
  std::size_t backup_;
  std::size_t min_workers_;
};

}  // namespace deltawire
