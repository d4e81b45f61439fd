#include "transport/mesh/wait_announcer.h"

namespace deltawire {

void WaitAnnouncer::ask(Waiter& waiter, Deadline now) {
  waiter.announced = true;
  waiter.asked_at = now;
  announced_ = WaitGraph::kNobody;  // so that it is announced again, even if it is the same
  update();
  peers_.each([now](Peer& peer) { peer.control.watch(now); });
}

void WaitAnnouncer::ask(Peer& peer) {
  const int target = announced_ == WaitGraph::kNobody ? peer.rank : announced_;
  peer.control.send(Waiting{target, steps_.place()});
}

void WaitAnnouncer::update() {
  int target = WaitGraph::kNobody;
  for (const Waiter* waiter : waiters_.all()) {
    if (!waiter->announced || waiter->operation->done) continue;
    target = waiter->operation->peer;
    break;
  }
  if (target == announced_) return;
  announced_ = target;
  peers_.broadcast(Waiting{target, steps_.place()});
}

void WaitAnnouncer::announce_all(Deadline now) {
  for (Waiter* waiter : waiters_.all()) {
    if (!waiter->announced) ask(*waiter, now);
  }
}

void WaitAnnouncer::on_waiting(Peer& peer, const Waiting& waiting) {
  peer.place = waiting.place;
  waits_.set(peer.rank, waiting.rank);
  if (waiting.rank != WaitGraph::kNobody) peer.control.send(Here{steps_.place()});
}

}  // namespace deltawire
