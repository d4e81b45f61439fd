// Announces to the other ranks whom this one waits for, asks them to answer, and keeps their announcements.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "transport/mesh/driver.h"
#include "transport/mesh/peers.h"

namespace deltawire {

// This rank's sequence of steps. It checks that all ranks have the same sequence: they start anew at the same
// points, with the same numbers.

class StepSequence {
 public:
  // `peers` must outlive it.
  explicit StepSequence(Peers& peers) noexcept : peers_(peers) {}

  // How many buckets this rank has begun.
  std::uint64_t place() const noexcept { return place_; }

  // This rank begins a bucket of this step; tells the others if its steps start anew. The error: another rank
  // continues at another step.
  std::optional<Error> arrive(std::uint64_t step) {
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

  // It votes for the step.
  void end_step() noexcept { is_open_ = false; }

  // The peer's steps start anew. `vote_is_missing`: the peer has not voted on this rank's open ballot.
  std::optional<Error> on_start(Peer& peer, const Start& start, bool vote_is_missing) {
    ++peer.starts;
    peer.start_step = start.step;
    // A peer that starts anew without having voted on this rank's step will not take part in it. Otherwise
    // this rank may be about to start anew, too, which its next arrival will show.
    if (peer.starts <= starts_ || is_open_ || vote_is_missing) return compare(peer);
    return std::nullopt;
  }

 private:
  std::optional<Error> compare(const Peer& peer) const {
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

  Peers& peers_;
  std::uint64_t place_ = 0;
  std::uint32_t starts_ = 0;  // how often this rank's steps started anew
  std::uint64_t start_step_ = 0;
  std::uint64_t last_step_ = 0;
  bool is_open_ = false;  // a step has begun, and this rank has not voted for it
};

// The announced waits between ranks; finds the rank that all wait for.
class WaitGraph {
 public:
  static constexpr int kNobody = -1;

  explicit WaitGraph(int world_size) : waits_for_(static_cast<std::size_t>(world_size), kNobody) {}

  // `rank` announces that it waits for `other`, or no longer waits (kNobody).
  void set(int rank, int other) noexcept {
    assert(other >= kNobody && other < static_cast<int>(waits_for_.size()));
    waits_for_[static_cast<std::size_t>(rank)] = other;
  }
  int of(int rank) const noexcept { return waits_for_[static_cast<std::size_t>(rank)]; }

  bool anyone_waits() const noexcept {
    return std::any_of(waits_for_.begin(), waits_for_.end(), [](int other) { return other != kNobody; });
  }

  struct Verdict {
    int suspect = kNobody;
    std::vector<int> path = {};  // the ranks from the first to the suspect, or to where a cycle closes
    bool cycle = false;
    std::vector<int> circle = {};  // the ranks that wait for each other, if `self` is not among them
    std::vector<int> chain = {};   // each waits for the next; empty for a chain of one
  };
  // `self` waits for `first`: follows the announcements from there to a rank that waits for none. In a cycle
  // all ranks wait, so the suspect is `first` itself.
  Verdict follow(int self, int first) const {
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

 private:
  void circle_from(int rank, std::vector<int>& circle) const {
    int at = rank;
    do {
      circle.push_back(at);
      at = of(at);
    } while (at != rank);
  }

  std::vector<int> waits_for_;
};

class WaitAnnouncer {
 public:
  // All of them must outlive it.
  WaitAnnouncer(Peers& peers, const Waiters& waiters, const StepSequence& steps)
      : peers_(peers), waiters_(waiters), steps_(steps), waits_(peers.world_size()) {}

  // Tells the others whom this rank waits for; every living rank answers.
  void ask(Waiter& waiter, Deadline now) {
    waiter.announced = true;
    waiter.asked_at = now;
    repeat();
    peers_.each([now](Peer& peer) { peer.control.watch(now); });
  }

  // The same of one peer, by a rank that may wait for none.
  void ask(Peer& peer) {
    const int target = announced_ == WaitGraph::kNobody ? peer.rank : announced_;
    peer.control.send(Waiting{target, steps_.place()});
  }

  // Announces the wait once more: answers tell what the others have learned meanwhile.
  void repeat() {
    announced_ = WaitGraph::kNobody;
    update();
  }

  // Announces which rank the longest announced wait is for, if that has changed.
  void update() {
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

  // Announces every wait that was not announced yet. Deadlines differ, so the first rank to pass half of its
  // deadline may also be the first whose wait ends: a rank that waits itself must answer a waiting peer at
  // once, or it would be taken for the one that all wait for.
  void announce_all(Deadline now) {
    for (Waiter* waiter : waiters_.all()) {
      if (!waiter->announced) ask(*waiter, now);
    }
  }

  // Handles the peer's announcement, and answers it.
  void on_waiting(Peer& peer, const Waiting& waiting) {
    peer.place = waiting.place;
    const int before = waits_.of(peer.rank);
    if (before != WaitGraph::kNobody && before != waiting.rank) peer.moved_at = peer.heard_at;
    waits_.set(peer.rank, waiting.rank);
    if (waiting.rank != WaitGraph::kNobody) peer.control.send(Here{steps_.place(), deaf_rank(peer.heard_at)});
  }

  // The rank waits for nobody any more.
  void on_gone(int rank) noexcept { waits_.set(rank, WaitGraph::kNobody); }

  bool anyone_waits() const noexcept { return waits_.anyone_waits(); }
  // The rank at the end of the chain of waits that begins with `awaited`.
  WaitGraph::Verdict follow(int awaited) const { return waits_.follow(peers_.self(), awaited); }

 private:
  // The first rank whose machine acknowledges nothing of this one.
  int deaf_rank(Deadline now) {
    int deaf = WaitGraph::kNobody;
    peers_.each([&](Peer& peer) {
      if (deaf == WaitGraph::kNobody && peer.deaf_for(now) > Clock::duration{}) deaf = peer.rank;
    });
    return deaf;
  }

  Peers& peers_;
  const Waiters& waiters_;
  const StepSequence& steps_;
  WaitGraph waits_;
  int announced_ = WaitGraph::kNobody;
};

}  // namespace deltawire
