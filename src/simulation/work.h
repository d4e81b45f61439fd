// The steps of a rank's program: plain messages and votes, or a reducer.
#pragma once

#include <memory>
#include <string>

#include "simulation/job.h"

namespace deltawire::simulation {

class Work {
 public:
  virtual ~Work() = default;
  // One step, to its vote. After an error the step did not happen.
  virtual Status step(Transport& transport, std::uint64_t number) = 0;
  // The mesh has ended, and its transport too: nothing that was posted may have changed since the error.
  virtual void close() {}
};

std::unique_ptr<Work> make_messages(Job& job, int rank);
std::unique_ptr<Work> make_training(Job& job, int rank);

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
