// Optional ranks and their departures (Transport::set_optional).
//
// Required ranks decide who departs, and tell all ranks. An optional rank decides nothing.
#pragma once

#include <cassert>
#include <span>
#include <string>
#include <utility>

#include "transport/mesh/vote/consensus.h"
#include "transport/mesh/wait_announcer.h"
#include "transport/process/machine.h"

namespace deltawire {

class Membership {
 public:
  // All of them must outlive it.
  Membership(Peers& peers, OperationTable& operations, Waiters& waiters, Driver& driver, Consensus& consensus,
             WaitAnnouncer& announcer) noexcept
      : peers_(peers),
        operations_(operations),
        waiters_(waiters),
        driver_(driver),
        consensus_(consensus),
        announcer_(announcer) {}

  void set_optional(std::span<const int> ranks) noexcept {
    for (const int rank : ranks) {
      assert(rank >= 0 && rank < peers_.world_size());
      has_optional_ = true;
      if (rank == peers_.self()) {
        is_optional_ = true;
      } else {
        peers_[rank].is_optional = true;
      }
    }
  }

  // Whether any rank is optional, and whether this one is.
  bool has_optional() const noexcept { return has_optional_; }
  bool is_optional() const noexcept { return is_optional_; }
  // Whether this rank may decide that rank's departure.
  bool may_drop(int rank) const noexcept {
    return !is_optional_ && peers_.has(rank) && peers_[rank].is_optional;
  }

  // A peer's error ends the mesh or, if the peer is optional, makes it depart.
  void blame(Peer& peer, Error error) {
    if (peer.is_optional) {
      drop(peer, std::move(error));
    } else {
      consensus_.fail(std::move(error), peers_.self());
    }
  }

  // The peer departs; if this rank is required, on all ranks, the peer included.
  void drop(Peer& peer, Error error) {
    if (consensus_.failed() || peer.departure) return;
    const ControlMessage news = Dropped{peer.rank, error};
    // The others would ignore an optional rank.
    consensus_.on_gone(peer.rank, is_optional_ ? nullptr : &news);
    peer.depart(std::move(error));
    announcer_.on_gone(peer.rank);
    operations_.fail_all(peer.rank);
    // If the departed rank blamed a required one, the others wait for that one, too, and will find the same.
    if (!blames_required(peer)) waiters_.renew_all(MachineClock::now());
    consensus_.notify_waiters();
    driver_.wake();
    announcer_.update();
  }

  // Another rank has dropped one.
  void on_dropped(const Peer& from, const Dropped& dropped) {
    if (consensus_.failed() || from.is_optional) return;
    const int self = peers_.self();
    const bool may_depart = dropped.rank == self ? is_optional_ : peers_[dropped.rank].is_optional;
    if (!may_depart) {
      const std::string lost = peers_.name(dropped.rank);
      consensus_.fail(
          {.code = ErrorCode::kMismatch,
           .message = peers_.name(from.rank) + " has dropped " + lost + ", which is not optional on " +
                      peers_.name(self) + " (it says of " + lost + ": " + dropped.error.message + ")",
           .suspect = from.rank,
           .reporter = self,
           .ranks = {dropped.rank},
           .advice = "name the same optional ranks on all, before the first operation"},
          self);
      return;
    }
    if (dropped.rank == self) {
      Error told = dropped.error;
      told.message = peers_.name(from.rank) + " has dropped " + peers_.name(self) +
                     ", this one, and the others go on without it: " + told.message;
      told.suspect = self;
      told.reporter = from.rank;
      consensus_.fail(std::move(told), from.rank);
      return;
    }
    Peer& gone = peers_[dropped.rank];
    Error told = dropped.error;
    if (told.suspect < 0) told.suspect = dropped.rank;
    blame(gone, peers_.names().reported(from.rank, std::move(told)));
    // It was blamed, but lives.
    if (gone.departure && gone.departure->suspect == from.rank) waiters_.renew_all(MachineClock::now());
  }

 private:
  bool blames_required(const Peer& dropped) const noexcept {
    assert(dropped.departure.has_value());
    const int suspect = dropped.departure->suspect;
    return peers_.has(suspect) && !peers_[suspect].is_optional;
  }

  Peers& peers_;
  OperationTable& operations_;
  Waiters& waiters_;
  Driver& driver_;
  Consensus& consensus_;
  WaitAnnouncer& announcer_;
  bool has_optional_ = false;
  bool is_optional_ = false;
};

}  // namespace deltawire
