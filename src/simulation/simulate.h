// One simulation, or many.
#pragma once

#include <cstdint>
#include <string>

namespace deltawire::simulation {

struct Outcome {
  std::string broken;      // the promise that the job broke; empty: it kept all
  std::string plan;        // as text
  std::uint64_t hash = 0;  // of all that happened
  std::uint64_t events = 0;
  std::size_t faults = 0;   // that happened
  std::size_t errors = 0;   // with which ranks have left
  std::uint64_t steps = 0;  // committed, over all ranks
};

// `world` is 0 where the seed decides. `prints` writes what happens to standard output.
Outcome simulate(std::uint64_t seed, int world = 0, bool prints = false);
// A meeting of 2 to 7 ranks instead of a job; `steps` counts the ranks that have met.
Outcome simulate_meeting(std::uint64_t seed, int world = 0, bool prints = false);
// A parameter server and its workers; `steps` counts those of all servers.
Outcome simulate_served(std::uint64_t seed, int world = 0, bool prints = false);
// An elastic session; `steps` counts those that its processes have seen committed.
Outcome simulate_elastic(std::uint64_t seed, int world = 0, bool prints = false);

}  // namespace deltawire::simulation
