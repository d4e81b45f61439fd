// Decides which rank is to blame for a wait that is too long, or for a stream that has ended. It has no
// clock: callers pass `now`.
#pragma once

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <utility>
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
  Peer* hopeless(const Waiter& waiter) noexcept {
    Peer& awaited = peers_[waiter.operation->peer];
    if (awaited.is_hopeless(*waiter.operation)) return &awaited;
    if (!membership_.has_optional()) return nullptr;
    Peer* found = nullptr;
    waiters_.each_other(waiter, [&](const Operation& operation) {
      Peer& gone = peers_[operation.peer];
      if (found == nullptr && gone.is_optional && gone.is_hopeless(operation)) found = &gone;
    });
    return found;
  }

  // The peer left normally while this rank waited for it.
  void blame_left(Peer& peer) {
    const int self = peers_.self();
    membership_.blame(peer,
                      {.code = ErrorCode::kPeerLost,
                       .message = peers_.name(peer.rank) + " left in good order while " + peers_.name(self) +
                                  " still waits for it; do all ranks run the same number of steps?",
                       .suspect = peer.rank,
                       .reporter = self,
                       .waits_for = peer.rank});
  }

  // The peer's stream has ended without a goodbye; `error` is the errno, 0 for an ordinary end.
  void blame_broken(Peer& peer, int error) {
    const std::string name = peers_.name(peer.rank);
    Error told{.code = ErrorCode::kPeerLost, .suspect = peer.rank};
    if (error == EBADMSG) {
      told.code = ErrorCode::kCorrupt;
      told.message =
          "bytes of the encrypted connection to " + name + " were changed, repeated or left out on the way";
      told.advice = "check who can reach the network between";
    } else if (error == EPROTO) {
      told.code = ErrorCode::kCorrupt;
      told.message = name + " has written nonsense into the memory that it shares with this rank";
      told.advice = "see " + name + "'s own log";
    } else if (error != 0) {
      told.message = "the connection to " + name + " broke (" + std::generic_category().message(error) + ")";
      told.advice = "check the network and " + name + "'s machine";
    } else if (peer.control.end() == ControlStream::End::kOpen) {
      told.message = "the data connection to " + name + " was cut while its control connection still stands";
      told.advice = "check the network between";
    } else {
      told.message = name + " closed its connection without a farewell (killed or crashed?)";
      told.advice = "see " + name + "'s own log";
    }
    membership_.blame(peer, std::move(told));
  }

  // The peer's data stream has ended before its control stream: it may explain itself, and is asked whether
  // it lives.
  void let_explain(Peer& peer, Deadline now) {
    assert(!peer.said_goodbye && !peer.departure);
    peer.verdict_at = now + kExplanationTime;
    peer.silent_since = now;
    announcer_.ask(peer);
  }

  // Time for that is over. Who answers lives, and its data connection alone was cut. Who does not may have
  // left in good order, and be silent for longer, or is frozen; whoever waits for it has a deadline.
  void judge_silence(Peer& peer, Deadline now) {
    if (peer.stream_error != 0 || peer.heard_at >= peer.silent_since)
      return blame_broken(peer, peer.stream_error);
    peer.verdict_at = now + kExplanationTime;
  }

  // The deadline has passed, and all messages are read. Returns whether the wait is extended, because the
  // rank that all wait for is alive and only late.
  bool extend(Waiter& waiter, Deadline now) {
    if (arrival_timeout_.count() == 0) return false;
    const WaitGraph::Verdict verdict = announcer_.follow(waiter.operation->peer);
    if (verdict.cycle) return false;
    Peer& suspect = peers_[verdict.suspect];
    if (waiter.asked_at == kNever) announcer_.ask(waiter, now);
    if (!answers(suspect, waiter)) {
      // If it was asked only now, the answer may still be in flight.
      if (now - waiter.asked_at >= kAnswerTime) return false;
      waiter.deadline = waiter.asked_at + kAnswerTime;
      return true;
    }
    const bool is_late = suspect.place < steps_.place();
    if (is_late && now - waiter.began_at >= arrival_timeout_) return false;
    // If it has arrived since it was last asked, its messages get their normal time.
    if (!is_late && !suspect.was_late) return false;
    suspect.was_late = is_late;
    waiter.deadline = now + std::max<Clock::duration>(waiter.span, kAnswerTime);
    if (is_late) waiter.deadline = std::min(waiter.deadline, waiter.began_at + arrival_timeout_);
    announcer_.ask(waiter, now);
    return true;
  }

  // The wait is not extended: names the rank to blame, unless ranks that were asked only just now may still
  // answer. Afterwards the wait has more time, or has ended, or the mesh has failed.
  void time_out(Waiter& waiter, Deadline now) {
    if (awaits_answers(waiter, now)) return;
    const WaitGraph::Verdict verdict = verdict_on(waiter, now);
    if (lets_others_speak(waiter, verdict, now)) return;
    Peer& suspect = peers_[verdict.suspect];
    assert(peers_.has(verdict.suspect));
    Error error = waited(waiter, *waiter.operation, now);
    error.suspect = verdict.suspect;
    error.ranks = verdict.chain;
    add_what_is_known(waiter, verdict, now, error);
    if (outlives(waiter, suspect, error, now)) return;
    const bool silent = waiter.asked_at != kNever && !answers(suspect, waiter);
    consensus_.fail(std::move(error), peers_.self(), silent ? verdict.suspect : kNoSuspect);
  }

 private:
  // A living rank answers within this time, however busy its machine is.
  static constexpr std::chrono::milliseconds kAnswerTime{1000};
  // After this time a rank knows whether what it has just asked is acknowledged.
  static constexpr std::chrono::milliseconds kDeafCheck{600};
  // How long a peer whose data stream broke may take to explain itself on its control stream. A crash ends
  // both at once, so this passes only if one connection alone was cut, or the path was down: then each
  // connection sends again at a time of its own.
  static constexpr std::chrono::milliseconds kExplanationTime{200};
  // A wait is not extended by more than kAnswerTime and this.
  static constexpr std::chrono::milliseconds kLongEnough{200};

  static constexpr const char* kAnswersNothing = " answers nothing, so it is frozen or cut off";
  static constexpr const char* kSeeItsLog = "see its own log";

  static std::string what_is_due(const Operation& operation, const std::string& name) {
    switch (operation.kind) {
      case Operation::Kind::kSend: return name + " to take a message";
      case Operation::Kind::kReceive: return "a message of " + name;
      case Operation::Kind::kVote: break;
    }
    return "the vote of " + name;
  }

  static bool answers(const Peer& peer, const Waiter& waiter) noexcept {
    return waiter.asked_at != kNever && peer.heard_at >= waiter.asked_at;
  }

  // Ranks that were asked only just now still get time to answer: another rank has used up this step's time
  // before this wait began, or this rank itself has not run meanwhile. True: the wait is extended by that
  // time.
  bool awaits_answers(Waiter& waiter, Deadline now) {
    if (waiter.asked_at == kNever) announcer_.ask(waiter, now);
    const Deadline answered_by = waiter.asked_at + kAnswerTime;
    if (now >= answered_by) return false;
    if (!membership_.has_optional()) return lets_all_answer(waiter, now);
    // Whoever answers may still send what it owes, unless it had time enough.
    bool may_answer = now - waiter.began_at < kAnswerTime;
    const auto look_at = [&](const Operation& operation) {
      may_answer = may_answer || (!operation.done && !answers(peers_[operation.peer], waiter));
    };
    look_at(*waiter.operation);
    waiters_.each_other(waiter, look_at);
    if (may_answer) {
      waiter.deadline = answered_by;
      if (answered_by - now > kLongEnough) waiter.circles = 2;
    }
    return may_answer;
  }

  // Without optional ranks whoever blames first ends the mesh: a rank that knows little shall not be the
  // first. In a circle the others have had their time after this, unless little of it was left.
  bool lets_all_answer(Waiter& waiter, Deadline now) noexcept {
    if (waiter.circles == 1) return false;
    if (const Deadline known = waiter.asked_at + kDeafCheck; now < known) {
      waiter.deadline = known;
      return true;
    }
    announcer_.repeat();
    waiter.deadline = waiter.asked_at + kAnswerTime;
    if (waiter.deadline - now > kLongEnough) waiter.circles = 2;
    return true;
  }

  // A rank on the way whose own long wait is over has what it waited for, and may just be about to send what
  // this rank waits for.
  bool is_moving(const WaitGraph::Verdict& verdict, Deadline now) const {
    return std::ranges::any_of(verdict.path,
                               [&](int rank) { return now - peers_[rank].moved_at < kAnswerTime; });
  }

  // In a circle a message may be lost on the path between two ranks: the rank that sent it learns that it is
  // not acknowledged, so it shall be the first to blame. Or this rank was frozen, and what the others say of
  // it is still in flight.
  bool lets_others_speak(Waiter& waiter, const WaitGraph::Verdict& verdict, Deadline now) {
    if (waiter.circles == 2 || (!verdict.cycle && !is_moving(verdict, now))) return false;
    if (waiter.circles++ == 0) {
      announcer_.ask(waiter, now);
      waiter.deadline = now + kDeafCheck;
    } else {
      announcer_.repeat();
      waiter.deadline = waiter.asked_at + kAnswerTime;
    }
    return true;
  }

  // If ranks are optional, a silent rank is to blame itself, whomever it said it waits for. An unreachable
  // rank always is: it may wait for messages that were sent to it and have not arrived.
  WaitGraph::Verdict verdict_on(const Waiter& waiter, Deadline now) {
    const int awaited = waiter.operation->peer;
    const bool silent = membership_.has_optional() && !answers(peers_[awaited], waiter);
    if (silent || peers_[awaited].deaf_for(now) > Clock::duration{}) return {.suspect = awaited};
    WaitGraph::Verdict verdict = announcer_.follow(awaited);
    // What a rank has said before it stood still may be over.
    const auto stands_still = [&](int rank) {
      return now - waiter.asked_at >= kAnswerTime && !answers(peers_[rank], waiter);
    };
    const auto still = std::ranges::find_if(verdict.path, stands_still);
    if (still != verdict.path.end()) {
      verdict.suspect = *still;
      verdict.cycle = false;
    }
    if (verdict.cycle) open_circle(waiter, verdict, now);
    return verdict;
  }

  // In a circle a path may not carry what a rank sends.
  void open_circle(const Waiter& waiter, WaitGraph::Verdict& verdict, Deadline now) {
    peers_.each([&](Peer& peer) {
      if (verdict.cycle && peer.deaf_for(now) > Clock::duration{}) verdict = {.suspect = peer.rank};
    });
    for (const int rank : verdict.path) {
      const int deaf = peers_[rank].deaf;
      if (!verdict.cycle || deaf < 0 || !answers(peers_[rank], waiter)) continue;
      verdict.suspect = deaf == peers_.self() ? rank : deaf;
      verdict.cycle = false;
    }
    // The required ranks go on without an optional one of the circle.
    const auto may_go = [this](int rank) { return peers_[rank].is_optional; };
    const auto one = std::ranges::find_if(verdict.circle, may_go);
    if (verdict.cycle && one != verdict.circle.end()) verdict.suspect = *one;
  }

  // A deadline that blames an optional rank drops it, together with all other optional ranks in this wait
  // that don't answer. False: the mesh must end. An optional rank decides nothing: it gives the required
  // ranks time to decide.
  bool outlives(Waiter& waiter, Peer& suspect, const Error& error, Deadline now) {
    if (!suspect.is_optional) return false;
    if (membership_.is_optional() || suspect.departure) {
      if (waiter.renewals == peers_.world_size()) return false;
      ++waiter.renewals;
      waiters_.renew(waiter, now);
      return true;
    }
    std::vector<std::pair<Peer*, Error>> dropped;
    dropped.emplace_back(&suspect, error);
    waiters_.each_other(waiter, [&](const Operation& operation) {
      Peer& silent = peers_[operation.peer];
      if (operation.done || !silent.is_optional || answers(silent, waiter)) return;
      Error told = waited(waiter, operation, now);
      told.message += peers_.name(silent.rank) + kAnswersNothing;
      told.suspect = silent.rank;
      told.advice = kSeeItsLog;
      dropped.emplace_back(&silent, std::move(told));
    });
    for (auto& [peer, why] : dropped) membership_.drop(*peer, std::move(why));
    return true;
  }

  // The beginning of an error about a wait that is too long.
  Error waited(const Waiter& waiter, const Operation& operation, Deadline now) const {
    const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(now - waiter.began_at);
    const int self = peers_.self();
    return {.code = ErrorCode::kTimeout,
            .message = peers_.name(self) + " waited " + std::to_string(time.count()) + " ms for " +
                       what_is_due(operation, peers_.name(operation.peer)) + "; ",
            .reporter = self,
            .waits_for = operation.peer};
  }

  // "rank 1 waits for rank 2, rank 2 waits for rank 3".
  std::string waits_in(const std::vector<int>& chain) const {
    std::string text;
    for (std::size_t i = 1; i < chain.size(); ++i) {
      if (i > 1) text += ", ";
      text += peers_.name(chain[i - 1]) + " waits for " + peers_.name(chain[i]);
    }
    return text;
  }

  // Explains why a wait was too long.
  void add_what_is_known(const Waiter& waiter, const WaitGraph::Verdict& verdict, Deadline now,
                         Error& error) {
    Peer& suspect = peers_[verdict.suspect];
    const std::string name = peers_.name(verdict.suspect);
    const bool silent = waiter.asked_at != kNever && !answers(suspect, waiter);
    error.message += waits_in(verdict.chain);
    if (verdict.cycle) {
      error.message +=
          ": the ranks wait for each other in a circle, so do they all run the same steps, and is the time "
          "(timeout) enough for the links?";
      return;
    }
    if (!verdict.chain.empty()) error.message += "; ";
    if (const Clock::duration time = suspect.deaf_for(now); time > Clock::duration{}) {
      const std::string nothing =
          "its machine has acknowledged nothing that " + peers_.name(peers_.self()) + " has sent for " +
          std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()) + " ms: ";
      if (silent) {
        error.message += name + " answers nothing, and " + nothing +
                         "the network between them is cut, in one direction or both, or that machine is down";
        error.advice = "check both";
      } else {
        error.message += name + " is heard, but " + nothing + "it does not arrive";
        error.advice = "check the network in this direction";
      }
      return;
    }
    error.advice = kSeeItsLog;
    if (silent) {
      error.message += name + kAnswersNothing;
      return;
    }
    const auto tells = [&](const Peer& peer) {
      const bool is_of_suspect = peer.deaf == verdict.suspect || peer.rank == verdict.suspect;
      return peer.deaf >= 0 && is_of_suspect && answers(peer, waiter);
    };
    if (const Peer* teller = peers_.find(tells)) {
      error.message += peers_.name(teller->rank) + " says that " + peers_.name(teller->deaf) +
                       "'s machine acknowledges nothing that it sends";
      error.advice = "check the network in this direction";
      return;
    }
    error.message += name + " waits for nobody: ";
    if (suspect.place < steps_.place()) {
      error.message += "it answers, but has not arrived at this step";
      error.advice = "if that may take so long, allow it more time (arrival_timeout), else see its own log";
    } else {
      error.message += "frozen, stuck or busy, or the time (timeout) is too short for the link";
    }
  }

  Peers& peers_;
  Waiters& waiters_;
  const StepSequence& steps_;
  Consensus& consensus_;
  WaitAnnouncer& announcer_;
  Membership& membership_;
  std::chrono::milliseconds arrival_timeout_{0};
};

}  // namespace deltawire
