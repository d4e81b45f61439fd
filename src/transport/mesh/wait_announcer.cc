#include "transport/mesh/wait_announcer.h"

#include <algorithm>
#include <string>

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

std::optional<Error> StepSequence::arrive(std::uint64_t step) {
  ++place_;
  is_open_ = true;
  if (starts_ == 0 || (step != last_step_ && step != last_step_ + 1)) {
    ++starts_;
    start_step_ = step;
    peers_.broadcast(Start{step});
  }
  last_step_ = step;
  std::optional<Error> mismatch;
  peers_.each([&](const Peer& peer) {
    if (!mismatch) mismatch = compare(peer);
  });
  return mismatch;
}

std::optional<Error> StepSequence::on_start(Peer& peer, const Start& start, bool vote_is_missing) {
  ++peer.starts;
  peer.start_step = start.step;
  // A peer that starts anew without having voted on this rank's step will not take part in it. Otherwise this
  // rank may be about to start anew, too, which its next arrival will show.
  if (peer.starts <= starts_ || is_open_ || vote_is_missing) return compare(peer);
  return std::nullopt;
}

std::optional<Error> StepSequence::compare(const Peer& peer) const {
  if (starts_ == 0 || peer.starts < starts_) return std::nullopt;
  if (peer.starts == starts_ && peer.start_step == start_step_) return std::nullopt;
  const std::uint64_t own_step = peer.starts == starts_ ? start_step_ : last_step_;
  const int self = peers_.self();
  return Error{.code = ErrorCode::kMismatch,
               .message = peers_.name(peer.rank) + " continues at step " + std::to_string(peer.start_step) +
                          ", " + peers_.name(self) + " at step " + std::to_string(own_step),
               .suspect = peer.rank,
               .reporter = self,
               .ranks = {peer.rank},
               .advice = "load the same checkpoint on every rank, or on none"};
}

}  // namespace deltawire
