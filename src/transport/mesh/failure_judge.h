// Decides which rank is to blame for a wait that is too long, or for a stream that has ended. It has no
// clock: callers pass `now`.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "transport/mesh/membership.h"

namespace deltawire {

class FailureJudge {
 public:
  // All of them must outlive it.
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

  // The peer of an operation that can't complete any more because the peer has left; nullptr: there is none.
  // Among several operations only the first counts, as for a wait that is too long, except that an optional
  // peer's operation counts anywhere.
  Peer* hopeless(const Waiter& waiter) noexcept;
  // The peer left normally while this rank waited for it.
  void blame_left(Peer& peer);
  // The peer's stream has ended without a goodbye; `error` is the errno, 0 for an ordinary end.
  void blame_broken(Peer& peer, int error);
  // The peer's data stream has ended before its control stream: it may explain itself, and is asked whether
  // it lives.
  void let_explain(Peer& peer, Deadline now);
  // Time for that is over. A peer that has left may be silent for longer.
  void judge_silence(Peer& peer, Deadline now);

  // The deadline has passed, and all messages are read. Returns whether the wait is extended, because the
  // rank that all wait for is alive and only late.
  bool extend(Waiter& waiter, Deadline now);
  // The wait is not extended: names the rank to blame, unless ranks that were asked only just now may still
  // answer. Afterwards the wait has more time, or has ended, or the mesh has failed.
  void time_out(Waiter& waiter, Deadline now);

 private:
  static bool answers(const Peer& peer, const Waiter& waiter) noexcept;
  bool awaits_answers(Waiter& waiter, Deadline now);
  bool lets_all_answer(Waiter& waiter, Deadline now) noexcept;
  bool is_moving(const WaitGraph::Verdict& verdict, Deadline now) const;
  bool lets_others_speak(Waiter& waiter, const WaitGraph::Verdict& verdict, Deadline now);
  WaitGraph::Verdict verdict_on(const Waiter& waiter, Deadline now);
  void open_circle(const Waiter& waiter, WaitGraph::Verdict& verdict, Deadline now);
  bool outlives(Waiter& waiter, Peer& suspect, const Error& error, Deadline now);
  Error waited(const Waiter& waiter, const Operation& operation, Deadline now) const;
  std::string waits_in(const std::vector<int>& chain) const;
  void add_what_is_known(const Waiter& waiter, const WaitGraph::Verdict& verdict, Deadline now, Error& error);

  Peers& peers_;
  Waiters& waiters_;
  const StepSequence& steps_;
  Consensus& consensus_;
  WaitAnnouncer& announcer_;
  Membership& membership_;
  std::chrono::milliseconds arrival_timeout_{0};
};

}  // namespace deltawire
