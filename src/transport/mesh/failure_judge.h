// Who is to blame: for a wait that is too long, for a stream that has ended. It has no clock of its own:
// `now` is the caller's.
#pragma once

#include <chrono>
#include <string>

#include "transport/mesh/membership.h"

namespace deltawire {

class FailureJudge {
 public:
  // All of them outlive it.
  FailureJudge(Peers& peers, Waiters& waiters, const StepSequence& steps, Consensus& consensus,
               WaitAnnouncer& announcer, Membership& membership) noexcept
      : peers_(peers),
        waiters_(waiters),
        steps_(steps),
        consensus_(consensus),
        announcer_(announcer),
        membership_(membership) {}

  // Transport::set_arrival_timeout.
  void set_arrival_timeout(std::chrono::milliseconds timeout) noexcept { arrival_timeout_ = timeout; }

  // The peer of an operation that can't be done any more, since the peer has left; nullptr: there is none.
  // If there are several operations, the first counts, as in a wait that is too long; but an optional peer's
  // is no reason to wait for the deadline.
  Peer* hopeless(const Waiter& waiter) noexcept;
  // It left in good order while it was waited for.
  void blame_left(Peer& peer);
  // Its stream has ended without a farewell; `error` is the errno, 0 for an ordinary end.
  void blame_broken(Peer& peer, int error);

  // The deadline has passed, and all is read that has come: whether the wait goes on, because the rank that
  // everybody waits for answers, and is only late.
  bool extend(Waiter& waiter, Deadline now);
  // It does not: names the rank that is to blame, unless those who were asked only just now may still answer.
  // Either the wait has more time, or it has ended, or the mesh has failed.
  void time_out(Waiter& waiter, Deadline now);

 private:
  static bool answers(const Peer& peer, const Waiter& waiter) noexcept;
  bool awaits_answers(Waiter& waiter, Deadline now);
  WaitGraph::Verdict verdict_on(const Waiter& waiter, Deadline now);
  bool outlives(Waiter& waiter, Peer& suspect, const Error& error, Deadline now);
  std::string waited(const Waiter& waiter, const Operation& operation, Deadline now) const;
  std::string what_is_known(const Waiter& waiter, const WaitGraph::Verdict& verdict, Deadline now);

  Peers& peers_;
  Waiters& waiters_;
  const StepSequence& steps_;
  Consensus& consensus_;
  WaitAnnouncer& announcer_;
  Membership& membership_;
  std::chrono::milliseconds arrival_timeout_{0};
};

}  // namespace deltawire
