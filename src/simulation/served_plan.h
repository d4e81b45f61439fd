// What a seed decides about a parameter server's job: its ranks, options and network, and what goes wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deltawire/server.h"
#include "simulation/disks.h"
#include "simulation/plan.h"

namespace deltawire::simulation {

// A disk has no room for some snapshots, or has not flushed them when its machine loses its power.
struct DiskFault {
  int rank = 0;
  NoRoom no_room = NoRoom::kNowhere;  // kNowhere: it lies
  std::uint64_t from = 0;             // snapshots of this start, without the first of a server
  std::uint64_t count = 0;            // 0: nothing is wrong

  std::string text() const;
};

struct ServedPlan {
  Plan job;  // without faults
  ServerOptions options;
  std::string optimizer;
  std::vector<std::uint64_t> steps;  // by worker: when it closes
  bool is_eager = false;             // workers pull tensor by tensor
  std::size_t longest = 1500;  // elements of the model's first tensor, which may be cut over the servers
  std::uint64_t every = 0;     // steps between two snapshots; 0: none
  Clock::duration writing{};   // about how long it takes at most until one is on the disk
  // Of the first start and, where there are snapshots, of each that goes on from them; at the last one
  // nothing goes wrong.
  std::vector<std::vector<Fault>> faults;
  std::vector<DiskFault> disk_faults;  // likewise

  std::string text() const;
  int workers() const noexcept { return job.world - options.servers; }
  bool drops() const noexcept { return options.on_worker_loss == WorkerLoss::kDrop; }
};

// `world` is 0 where the seed decides.
ServedPlan draw_served(std::uint64_t seed, int world);
// Whether what this codec leaves out of a gradient is lost: it keeps no residual.
bool loses(const std::string& codec);
// The same job without anything that goes wrong, over a fast network, in which all workers make `steps`.
ServedPlan undisturbed(const ServedPlan& plan, std::uint64_t steps);

}  // namespace deltawire::simulation
