// Who waits for whom: tells the other ranks whom this one waits for, asks them to answer, and keeps what they
// say of themselves.
#pragma once

#include "transport/mesh/peers.h"
#include "transport/mesh/step_sequence.h"
#include "transport/mesh/wait_graph.h"
#include "transport/mesh/waiters.h"

namespace deltawire {

class WaitAnnouncer {
 public:
  // All of them outlive it.
  WaitAnnouncer(Peers& peers, const Waiters& waiters, const StepSequence& steps)
      : peers_(peers), waiters_(waiters), steps_(steps), waits_(peers.world_size()) {}

  // Tells the others whom this rank waits for; whoever lives answers.
  void ask(Waiter& waiter, Deadline now);
  // Tells them whom the longest of the waits worth announcing is for, if that has changed.
  void update();
  // Asks for every wait that was not announced yet. Deadlines differ, so that the first rank to pass half of
  // its own may be the first whose wait ends: a rank that waits answers a waiting peer at once, or it would
  // be taken for the one that everybody waits for.
  void announce_all(Deadline now);

  // What the peer announces; answers it.
  void on_waiting(Peer& peer, const Waiting& waiting);
  // The rank waits for nobody any more.
  void on_gone(int rank) noexcept { waits_.set(rank, WaitGraph::kNobody); }

  bool anyone_waits() const noexcept { return waits_.anyone_waits(); }
  // The rank that a wait of this one for `awaited` ends at.
  WaitGraph::Verdict follow(int awaited) const { return waits_.follow(peers_.self(), awaited); }

 private:
  Peers& peers_;
  const Waiters& waiters_;
  const StepSequence& steps_;
  WaitGraph waits_;
  int announced_ = WaitGraph::kNobody;
};

}  // namespace deltawire
