// What a seed decides about an elastic session: its members, their network, and what happens to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/connect.h"
#include "simulation/dice.h"
#include "simulation/network.h"

namespace deltawire::simulation {

// What happens to a process. Those that the session begins with are 0 ... world - 1, others follow in the
// order in which they come.
struct ElasticFault {
  enum class Kind : std::uint8_t {
    kKill,         // the process dies; its machine closes its sockets
    kPowerOff,     // the machine is gone: silence
    kFreeze,       // the process stops for a while
    kFreezeHost,   // whoever next listens for a mesh, which is the host of a meeting that has decided
    kFreezeGiver,  // whoever is asked next for its residuals
    kMuteVoter,    // of whoever votes next nothing arrives at any other for a while, its ballot first
    kBusy,         // the program comes late to its next step
    kSplit,        // no process of `group` hears any other, nor is heard, for a while
    kCut,          // nothing arrives from `process` at `peer` for a while
    kSlow,         // the path from `process` to `peer` takes far longer for a while
    kLeave,        // the program leaves in good order
    kAbort,        // another thread of the program gives up
    kJoin,         // a process wants to join
    kMisfit,       // one whose tensors have other shapes
  };
  Kind kind{};
  int process = 0;
  int peer = 0;
  unsigned group = 0;       // bit p: process p
  Clock::duration at{};     // since the session's first process was started
  std::uint64_t calls = 0;  // kKill, kFreeze: and so many calls of its machine later
  Clock::duration lasts{};

  std::string text() const;
};

struct ElasticPlan {
  std::uint64_t seed = 0;
  int world = 3;
  std::string spec;
  std::size_t buckets = 1;
  std::uint64_t steps = 10;
  Clock::duration pause{};     // a program computes for up to this long before a step
  Clock::duration beat{};      // or until the next multiple of this time
  std::size_t longest = 1500;  // elements of the first tensor
  Clock::duration timeout{};
  Clock::duration meeting{};  // connect_timeout
  std::optional<int> at_least;
  bool gives_state = true;
  std::size_t state_bytes = 0;  // besides the weights
  int streams = 1;              // of each pair of members
  Encryption encryption = Encryption::kOff;
  Path path;
  std::size_t buffer = 0;
  Latencies latencies;
  std::vector<Clock::duration> comes;  // by rank: when it is started
  std::string scene;                   // whose faults are among these; empty: none
  bool is_pure = false;                // there are no others, so more is promised
  std::vector<ElasticFault> faults;

  // Whether its epochs are repeated alone afterwards: a large one would take as long and as much memory
  // again.
  bool is_repeated() const noexcept { return world <= 16; }
  std::string text() const;
};

// `world` is 0 where the seed decides.
ElasticPlan draw_elastic(std::uint64_t seed, int world);

}  // namespace deltawire::simulation
