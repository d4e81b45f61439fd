// Optional ranks and their departures (Transport::set_optional).
//
// Required ranks decide who departs, and tell all ranks. An optional rank decides nothing.
#pragma once

#include <span>

#include "transport/mesh/vote/consensus.h"
#include "transport/mesh/wait_announcer.h"

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

  void set_optional(std::span<const int> ranks) noexcept;
  // Whether any rank is optional, and whether this one is.
  bool has_optional() const noexcept { return has_optional_; }
  bool is_optional() const noexcept { return is_optional_; }
  // Whether this rank may decide that rank's departure.
  bool may_drop(int rank) const noexcept {
    return !is_optional_ && peers_.has(rank) && peers_[rank].is_optional;
  }

  // A peer's error ends the mesh or, if the peer is optional, makes it depart.
  void blame(Peer& peer, Error error);
  // The peer departs; if this rank is required, on all ranks, the peer included.
  void drop(Peer& peer, Error error);
  // Another rank has dropped one.
  void on_dropped(const Peer& from, const Dropped& dropped);

 private:
  bool blames_required(const Peer& dropped) const noexcept;

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
