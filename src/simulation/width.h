// What a step takes among many ranks: the library's engine, votes and reducers on a TimedMachine.
#pragma once

#include <cstdint>
#include <string>

#include "simulation/timed_machine.h"
#include "simulation/timed_network.h"

namespace deltawire::simulation {

struct WidthPlan {
  int world = 16;
  std::string spec = "direct(fp32)";
  std::uint64_t values = 1'000'000;  // of the tensor; 1: the step is little else than the vote
  // The tensor has only values/scale elements, each of which stands for so many: memory for all ranks'
  // tensors is what a simulation runs out of. 1: it has all.
  std::uint64_t scale = 1;
  int steps = 2;  // that are counted, after one that is not
  Hosts hosts;
  Line line;
  Costs costs;
};

// Means over the counted steps, and over the ranks where nothing else is said.
struct Width {
  std::string error;  // why there is no result
  double seconds = 0;
  double processor_seconds = 0;  // of all ranks together
  double turns = 0;              // how often a thread of the rank began to run
  double messages = 0;           // sent: calls on data streams, and their bytes
  double message_bytes = 0;
  double ballots = 0;  // sent: calls on control streams, and their bytes
  double ballot_bytes = 0;
  std::uint64_t mesh_bytes = 0;     // memory of a rank's engine, before the first step
  std::uint64_t reducer_bytes = 0;  // at most, of a rank's reducer
  std::uint64_t hash = 0;           // of all that happened
};

// One simulation at a time.
Width simulate_width(const WidthPlan& plan);

}  // namespace deltawire::simulation
