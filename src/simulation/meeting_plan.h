// What a seed decides about a meeting: who comes when, over what network, and what goes wrong.
#pragma once

#include <string>
#include <vector>

#include "deltawire/connect.h"
#include "simulation/plan.h"

namespace deltawire::simulation {

struct MeetingFault {
  enum class Kind : std::uint8_t {
    kKill,        // the process dies; its machine closes its streams
    kRestart,     // likewise, and another process is started as this rank
    kFreeze,      // the process stops for a while
    kCut,         // nothing arrives from `rank` at `peer` for a while
    kCutBoth,     // nor in the other direction
    kOtherToken,  // the rank has another token
    kOtherSpec,   // the rank has other settings
  };
  Kind kind{};
  int rank = 0;
  int peer = 0;
  Clock::duration at{};     // after the rank has begun to connect
  std::uint64_t calls = 0;  // kKill, kRestart, kFreeze: and so many calls of its machine later
  Clock::duration lasts{};

  std::string text() const;
};

struct MeetingPlan {
  std::uint64_t seed = 0;
  int world = 3;
  bool has_rendezvous = false;
  Encryption encryption = Encryption::kOff;
  Clock::duration timeout{};  // connect_timeout
  Path path;
  std::size_t buffer = 0;
  Latencies latencies;
  std::vector<Clock::duration> comes;  // by rank: when it begins
  std::vector<MeetingFault> faults;

  std::string text() const;
  // How much longer than without faults it may take until all have met; none: they may never meet.
  std::optional<Clock::duration> delay() const;
};

// `world` is 0 where the seed decides.
MeetingPlan draw_meeting(std::uint64_t seed, int world);

}  // namespace deltawire::simulation
