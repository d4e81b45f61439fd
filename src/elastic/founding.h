// How an elastic session begins, and how a process joins one.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "elastic/meeting.h"
#include "elastic/state_transfer.h"

namespace deltawire::elastic {

// Rank 0: waits for all other ranks, and gives them the first view. kTimeout (names the missing ranks),
// kMismatch, kAborted.
Result<Agreement> found_session(MeetingContext& context, int world_size);

// Adds those that are not there yet.
void add_doors(std::vector<Endpoint>& known, const std::vector<Endpoint>& doors);

// A process that calls at doors in turn until one of them has a view for it.
class Arrival {
 public:
  // All must outlive it. `receiver`: takes the state, of a process that joins; null: this is a rank that the
  // session begins with.
  Arrival(MeetingContext& context, StateReceiver* receiver, Deadline end);

  // `question`: Found or Join. kTimeout, kUnauthorized, kMismatch, kAborted, and what the other end reports.
  Result<Agreement> come(const Message& question);

 private:
  // An error, and whether it ends the attempts to come in.
  struct Problem {
    Error error;
    bool is_final = false;
  };
  template <class T>
  using OrProblem = tl::expected<T, Problem>;
  using OrNothing = OrProblem<std::optional<Agreement>>;  // nothing: call at the next door

  static tl::unexpected<Problem> passing(Error error) {
    return tl::unexpected<Problem>(Problem{std::move(error)});
  }
  static tl::unexpected<Problem> final_problem(Error error) {
    return tl::unexpected<Problem>(Problem{std::move(error), true});
  }

  OrNothing call(const Endpoint& door, const Message& question);
  OrNothing wait_at(const std::shared_ptr<PeerLine>& line);
  OrProblem<void> take_state(PeerLine& line, const Offer& offer);
  OrProblem<void> check_heard(Patience& patience) const;
  Status check_open() const;
  void move_to_front(const Endpoint& door);

  MeetingContext& context_;
  StateReceiver* const receiver_;
  Deadline end_;
  const Clock::duration patience_;  // how long a member may be silent
  std::vector<Endpoint> known_;
};

}  // namespace deltawire::elastic
