// A meeting in a simulation: ranks connect with connect_tcp, vote once, and leave.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/transport.h"
#include "simulation/plan.h"
#include "simulation/sockets.h"

namespace deltawire::simulation {

// What a seed decides about a meeting: who comes when, over what network, and what goes wrong.
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
  int streams = 1;            // of each pair of ranks
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

class Meeting {
 public:
  Meeting(const MeetingPlan& plan, Trace& trace);

  // Runs it to its end. Returns what promise it broke, or nothing.
  std::string run();

  std::uint64_t events() const noexcept { return scheduler_.events(); }
  // Faults that have happened, errors of ranks that live, and ranks that have met and voted.
  std::size_t happened() const noexcept { return happened_; }
  std::size_t errors() const noexcept;
  std::size_t met() const noexcept;

 private:
  // A process, and what has become of it. Process r is rank r; the one that is started again, r + 16.
  struct Process {
    int rank = 0;
    bool is_started = false;
    bool is_dead = false;
    Clock::duration frozen{};
    bool has_met = false;
    bool has_ended = false;
    std::optional<Error> error;
  };

  Process& at(int process) { return processes_[static_cast<std::size_t>(process)]; }
  // The process that is the rank now.
  int process_of(int rank) const;
  void start(int rank, int process);
  void live(int process);
  MeshOptions options_of(int rank) const;
  void schedule(const MeetingFault& fault);
  void happen(const MeetingFault& fault);
  void kill(const MeetingFault& fault);
  void bury_the_dead();
  void check(const Process& own);
  std::string check_all();
  void breaks(int rank, const std::string& text);
  bool has(MeetingFault::Kind kind) const;
  bool is_guilty(int rank) const;
  bool may_blame(const Error& error) const;
  void note(const std::string& text) { trace_.note(scheduler_.read(), text); }

  const MeetingPlan plan_;
  Trace& trace_;
  Scheduler scheduler_;
  Network network_;
  Sockets sockets_;
  std::vector<Process> processes_;
  std::size_t happened_ = 0;
  std::string broken_;
};

}  // namespace deltawire::simulation
