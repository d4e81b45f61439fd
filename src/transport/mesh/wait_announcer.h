// Announces to the other ranks whom this one waits for, asks them to answer, and keeps their announcements.
#pragma once

#include "transport/mesh/peers.h"
#include "transport/mesh/step_sequence.h"
#include "transport/mesh/wait_graph.h"
#include "transport/mesh/waiters.h"

namespace deltawire {

class WaitAnnouncer {
 public:
  // All of them must outlive it.
  WaitAnnouncer(Peers& peers, const Waiters& waiters, const StepSequence& steps)
      : peers_(peers), waiters_(waiters), steps_(steps), waits_(peers.world_size()) {}

  // Tells the others whom this rank waits for; every living rank answers.
  void ask(Waiter& waiter, Deadline now);
  // The same of one peer, by a rank that may wait for none.
  void ask(Peer& peer);
  // Announces the wait once more: answers tell what the others have learned meanwhile.
  void repeat();
  // Announces which rank the longest announced wait is for, if that has changed.
  void update();
  // Announces every wait that was not announced yet. Deadlines differ, so the first rank to pass half of its
  // deadline may also be the first whose wait ends: a rank that waits itself must answer a waiting peer at
  // once, or it would be taken for the one that all wait for.
  void announce_all(Deadline now);

  // Handles the peer's announcement, and answers it.
  void on_waiting(Peer& peer, const Waiting& waiting);
  // The rank waits for nobody any more.
  void on_gone(int rank) noexcept { waits_.set(rank, WaitGraph::kNobody); }

  bool anyone_waits() const noexcept { return waits_.anyone_waits(); }
  // The rank at the end of the chain of waits that begins with `awaited`.
  WaitGraph::Verdict follow(int awaited) const { return waits_.follow(peers_.self(), awaited); }

 private:
  // The first rank whose machine acknowledges nothing of this one.
  int deaf_rank(Deadline now);

  Peers& peers_;
  const Waiters& waiters_;
  const StepSequence& steps_;
  WaitGraph waits_;
  int announced_ = WaitGraph::kNobody;
};

}  // namespace deltawire
