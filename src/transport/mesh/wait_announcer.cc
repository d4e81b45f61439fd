#include "transport/mesh/wait_announcer.h"

#include <algorithm>

namespace deltawire {

bool WaitGraph::anyone_waits() const noexcept {
  return std::any_of(waits_for_.begin(), waits_for_.end(), [](int other) { return other != kNobody; });
}

void WaitGraph::circle_from(int rank, std::vector<int>& circle) const {
  int at = rank;
  do {
    circle.push_back(at);
    at = of(at);
  } while (at != rank);
}

WaitGraph::Verdict WaitGraph::follow(int self, int first) const {
  Verdict verdict;
  std::vector<bool> seen(waits_for_.size(), false);
  seen[static_cast<std::size_t>(self)] = true;
  int at = first;
  while (true) {
    if (seen[static_cast<std::size_t>(at)]) {
      verdict.suspect = first;
      verdict.cycle = true;
      if (at != self) circle_from(at, verdict.circle);
      return verdict;
    }
    seen[static_cast<std::size_t>(at)] = true;
    verdict.path.push_back(at);
    const int next = of(at);
    if (next == kNobody) {
      verdict.suspect = at;
      return verdict;
    }
    if (verdict.chain.empty()) verdict.chain.push_back(at);
    verdict.chain.push_back(next);
    at = next;
  }
}

void WaitAnnouncer::ask(Waiter& waiter, Deadline now) {
  waiter.announced = true;
  waiter.asked_at = now;
  repeat();
  peers_.each([now](Peer& peer) { peer.control.watch(now); });
}

void WaitAnnouncer::repeat() {
  announced_ = WaitGraph::kNobody;
  update();
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

int WaitAnnouncer::deaf_rank(Deadline now) {
  int deaf = WaitGraph::kNobody;
  peers_.each([&](Peer& peer) {
    if (deaf == WaitGraph::kNobody && peer.deaf_for(now) > Clock::duration{}) deaf = peer.rank;
  });
  return deaf;
}

void WaitAnnouncer::announce_all(Deadline now) {
  for (Waiter* waiter : waiters_.all()) {
    if (!waiter->announced) ask(*waiter, now);
  }
}

void WaitAnnouncer::on_waiting(Peer& peer, const Waiting& waiting) {
  peer.place = waiting.place;
  const int before = waits_.of(peer.rank);
  if (before != WaitGraph::kNobody && before != waiting.rank) peer.moved_at = peer.heard_at;
  waits_.set(peer.rank, waiting.rank);
  if (waiting.rank != WaitGraph::kNobody) peer.control.send(Here{steps_.place(), deaf_rank(peer.heard_at)});
}

}  // namespace deltawire
