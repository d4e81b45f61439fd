// A job in a simulation: its ranks, what goes wrong, and what each rank has seen.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "simulation/ledger.h"
#include "simulation/network.h"
#include "simulation/plan.h"
#include "simulation/scheduler.h"
#include "transport/mesh/engine.h"

namespace deltawire::simulation {

// How a rank's life in one mesh ended.
struct Ending {
  std::optional<Error> error;         // none: it left in good order
  Deadline failed_at;                 // or left
  LastCommit first;                   // right after the error
  LastCommit last;                    // before it left
  std::uint64_t next_step = 0;        // all before it are committed
  std::uint64_t committed = kNoStep;  // the last one, of those that this mesh has taken
};

struct RankLog {
  bool is_dead = false;         // from then on nothing counts
  bool has_lost_power = false;  // its machine has
  std::uint64_t next_step = 0;  // all before it are committed
  std::vector<Ending> endings;  // of one mesh after the other
  Ledger ledger;                // with a reducer
  Clock::duration frozen{};     // for how long it did not run
  Deadline frozen_since = kNever;
};

// What a rank's program does to itself at a point of a step.
struct Mishap {
  Clock::duration busy{};
  bool aborts = false;
  bool leaves = false;
  bool disagrees = false;
};

// The faults of one mesh, as far as they have happened.
struct Blame {
  unsigned guilty = 0;               // bit r: rank r, or a path from or to it
  unsigned victims = 0;              // likewise, ranks to which damaged bytes were sent
  bool silences = false;             // ranks that live may not hear each other, or not in time
  int freezes = 0;                   // of processes, which hear the others when they wake up
  Deadline woken_at{};               // the last of them
  Clock::duration delay{};           // a wait may have been longer by so much
  std::vector<Deadline> delays_end;  // when what they held up was under way again
  bool disagrees = false;            // some rank holds another result
  bool leaves = false;               // some rank takes fewer steps
  bool cuts = false;                 // a path is cut
  bool slows = false;                // or slow
  bool stands_still = false;         // a rank does, and its streams don't end
  Deadline heard_until{};            // until when a rank that stands still may be heard
  bool is_fatal = false;             // the mesh may end, whatever its deadlines are

  bool is_guilty(int rank) const noexcept { return (guilty >> rank & 1U) != 0; }
  // A rank stands still from now on; what it has sent may still be on its way.
  void stand_still(Deadline now) noexcept {
    stands_still = true;
    heard_until = std::max(heard_until, now);
  }
};

class Job;

// What the ranks of a job do, and what it is held to when it is over.
struct Play {
  std::function<void(Job& job, int rank)> run_rank;
  std::function<std::string(Job& job)> broken_promise;  // empty: it broke none
};

class Job {
 public:
  // Its ranks send messages and vote, or train.
  Job(const Plan& plan, Trace& trace);
  Job(const Plan& plan, Trace& trace, Play play);

  // Runs it to its end. Returns what promise it broke, or nothing.
  std::string run();

  const Plan& plan() const noexcept { return plan_; }
  Scheduler& scheduler() noexcept { return scheduler_; }
  RankLog& log(int rank) noexcept { return logs_[static_cast<std::size_t>(rank)]; }
  const std::vector<RankLog>& logs() const noexcept { return logs_; }
  const Blame& blame() const noexcept { return blames_.back(); }
  const std::vector<Blame>& blames() const noexcept { return blames_; }
  std::uint64_t events() const noexcept { return scheduler_.events(); }
  // Faults that have happened.
  std::size_t happened() const noexcept { return happened_; }

  // A rank has come to this point: faults begin.
  Mishap come_to(int rank, std::uint64_t step, Fault::Point point);
  // For how long the rank has been frozen so far.
  Clock::duration frozen(int rank);
  void note(const std::string& text) { trace_.note(scheduler_.read(), text); }
  // A promise is broken. Only the first is kept.
  void violate(int rank, const std::string& text);

  // The rank's streams in the current mesh, and the mesh's number.
  std::vector<PeerLinks> take_links(int rank) { return std::move(links_[static_cast<std::size_t>(rank)]); }
  std::uint32_t epoch() const noexcept { return static_cast<std::uint32_t>(blames_.size() - 1); }
  // The rank has left its mesh. Waits until all have; whether they meet again.
  bool meet_again(int rank);
  // The rank's program has ended.
  void end(int rank);

 private:
  void begin(const Fault& fault);
  void happen(const Fault& fault);
  void kill(const Fault& fault);
  void freeze(const Fault& fault);
  void cut(const Fault& fault);
  void delay(Clock::duration time);
  void bury_the_dead();

  const Plan plan_;
  Trace& trace_;
  const Play play_;
  Scheduler scheduler_;
  Network network_;
  std::vector<RankLog> logs_;
  std::vector<bool> triggered_;  // by fault
  std::vector<Blame> blames_;    // by mesh
  std::vector<std::vector<PeerLinks>> links_;
  std::size_t happened_ = 0;
  int absent_ = 0;  // ranks that have left the current mesh
  int ended_ = 0;   // ranks that live and have ended
  bool meets_again_ = false;
  std::string violation_;
};

// What one rank does, and what it checks on the way.
void run_rank(Job& job, int rank);

// A promise that the job broke; empty: it broke none.
std::string broken_promise(Job& job);

// How long a transport that leaves may wait.
inline constexpr Clock::duration kLeaving = std::chrono::seconds(2);

// How much longer than its deadline a vote, or anything that ends with one, may take: 3 s for each rank that
// doesn't answer, and 3 s to hear the others.
inline Clock::duration settling(const Job& job) {
  return std::chrono::seconds(3) * (job.plan().world + 1);
}

// How long what one rank has just done may be unknown to another: a few times along a path, with threads that
// wait for a processor.
inline Clock::duration in_flight(const Job& job) {
  return 8 * (job.plan().path.least + job.plan().path.jitter) + std::chrono::milliseconds(50);
}

// Calls `act`, which may take until `by` and a second more, where all wait for each other, unless the rank
// was frozen meanwhile.
auto in_time(Job& job, int rank, const char* what, Deadline by, auto act) {
  const Clock::duration frozen = job.frozen(rank);
  // It was frozen past its deadline, before this call: it still has to learn what the others have settled.
  if (const Deadline now = job.scheduler().now(); by < now) by = now + settling(job);
  auto result = act();
  const Clock::duration late = job.scheduler().now() - by - (job.frozen(rank) - frozen);
  if (late > std::chrono::milliseconds(1200)) {
    job.violate(rank, std::string(what) + " took " + seconds_text(late) + " longer than it may");
  }
  return result;
}

// The rank pauses, gives up or leaves where its seed says so; an error then.
Status meet_mishap(Job& job, int rank, Transport& transport, const Mishap& mishap);

}  // namespace deltawire::simulation
