// What a seed decides before a simulation begins: the job, its network, and what goes wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "simulation/network.h"

namespace deltawire::simulation {

struct Fault {
  enum class Kind : std::uint8_t {
    kKill,       // the process dies; its machine closes its streams
    kPowerOff,   // the machine is gone: silence
    kFreeze,     // the process stops for a while
    kBusy,       // the program comes late to its next step
    kCut,        // nothing arrives from `rank` at `peer` for a while
    kCutBoth,    // nor in the other direction
    kSplit,      // no rank of `group` hears any other, nor is heard, for a while
    kSlow,       // the path from `rank` to `peer` takes far longer, for good
    kReset,      // one stream between the two ends
    kHalfReset,  // at the end of `rank` alone
    kFlip,       // a bit of one stream is inverted
    kAbort,      // the program gives up
    kLeave,      // the program leaves in good order, too early
    kDisagree,   // the program holds another result
  };
  Kind kind{};
  int rank = 0;
  int peer = 0;
  unsigned group = 0;  // bit r: rank r
  StreamKind stream{};
  std::uint64_t step = 0;  // it happens `delay` after `rank` has come to this point of this step
  enum class Point : std::uint8_t { kBegin, kBeforeVote, kAfterVote } point{};
  Clock::duration delay{};
  // kFreeze: if not 0, the program is late by `delay`, and freezes within this call of its machine after it.
  std::uint64_t calls = 0;
  Clock::duration lasts{};
  std::uint64_t bytes = 0;  // kFlip: of the stream, from then on

  std::string text() const;
};

struct Plan {
  std::uint64_t seed = 0;
  int world = 3;
  std::string spec;  // of a reducer; empty: plain messages and votes
  bool folds = false;
  std::size_t buckets = 1;
  std::uint64_t steps = 4;
  std::size_t longest_message = 0;  // plain messages
  Clock::duration timeout{};
  Clock::duration pause{};  // a rank computes for up to this long before a step
  Path path;
  std::size_t buffer = 0;  // of a machine, for each direction of a stream
  Latencies latencies;
  std::vector<Fault> faults;

  std::string text() const;
};

// `world` is 0 where the seed decides.
Plan draw_plan(std::uint64_t seed, int world);
// Their parts, for other jobs: paths, buffers, deadlines and pauses; and what goes wrong in a job that has
// them. `calls` decides which freezes are within a call of the machine.
void draw_network(Dice& dice, Plan& plan);
std::vector<Fault> draw_faults(Dice& dice, Dice& calls, const Plan& plan);
// The same job without anything that goes wrong, and over a fast network.
Plan undisturbed(const Plan& plan);

}  // namespace deltawire::simulation
