// What an elastic session of many members costs: it begins, makes rounds, loses a member and takes one in,
// and the simulated network counts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "simulation/network.h"

namespace deltawire::simulation {

// One part of such a session.
struct ScalePhase {
  double seconds = 0;            // of the virtual clock, until the last member is through
  Load busiest;                  // of the member whose bytes are most
  Load all;                      // of all members together
  double processor_seconds = 0;  // of this machine: of all members, and of the simulation itself
};

struct Scale {
  int members = 0;
  std::string broken;               // the promise that was broken; empty: it kept all
  std::vector<ScalePhase> phases;   // in the order of time
  std::uint64_t streams = 0;        // that one member holds in a round
  std::uint64_t reducer_bytes = 0;  // the most that one member's reducer has counted
  double resident_bytes = 0;        // of this process, at its highest so far, for each member
};

// REQUIRES: members >= 3.
Scale measure_scale(int members);

// As tables in Markdown, one for each phase: a row for each of `measured`, which grow, and one for each of
// `wanted` beyond the largest: by the power of the two largest.
std::string scale_tables(std::span<const Scale> measured, std::span<const int> wanted);

}  // namespace deltawire::simulation
