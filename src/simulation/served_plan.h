// What a seed decides about a parameter server's job: its ranks, options and network, and what goes wrong.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "deltawire/server.h"
#include "simulation/plan.h"

namespace deltawire::simulation {

struct ServedPlan {
  Plan job;  // without faults
  ServerOptions options;
  std::string optimizer;
  std::vector<std::uint64_t> steps;  // by worker: when it closes
  bool is_eager = false;             // workers pull tensor by tensor
  std::uint64_t every = 0;           // steps between two snapshots; 0: none
  Clock::duration writing{};         // how long it takes at most until one is on the disk
  // Of the first start and, where there are snapshots, of each that goes on from them; at the last one
  // nothing goes wrong.
  std::vector<std::vector<Fault>> faults;

  std::string text() const;
  int workers() const noexcept { return job.world - options.servers; }
  bool drops() const noexcept { return options.on_worker_loss == WorkerLoss::kDrop; }
};

// `world` is 0 where the seed decides.
ServedPlan draw_served(std::uint64_t seed, int world);
// The same job without anything that goes wrong, over a fast network, in which all workers make `steps`.
ServedPlan undisturbed(const ServedPlan& plan, std::uint64_t steps);

}  // namespace deltawire::simulation
