// Which ranks the others go on without: optional ones, and their departures (Transport::set_optional).
//
// Required ranks decide who departs, and tell all. An optional one decides nothing.
#pragma once

#include <span>

#include "transport/mesh/consensus.h"
#include "transport/mesh/wait_announcer.h"

namespace deltawire {

class Membership {
 public:
  // All of them outlive it.
  Membership(Peers& peers, OperationTable& operations, Waiters& waiters, Driver& driver, Consensus& consensus,
             WaitAnnouncer& announcer) noexcept
      : peers_(peers),
        operations_(operations),
        waiters_(waiters),
        driver_(driver),
        consensus_(consensus),
        announcer_(announcer) {}

  void set_optional(std::span<const int> ranks) noexcept;
  // Whether some rank is optional, whether this one is.
  bool has_optional() const noexcept { return has_optional_; }
  bool is_optional() const noexcept { return is_optional_; }
  // Whether the departure of that rank is for this one to decide.
  bool may_drop(int rank) const noexcept {
    return !is_optional_ && peers_.has(rank) && peers_[rank].is_optional;
  }

  // What a peer has done ends the mesh, or makes the peer depart if it is optional.
  void blame(Peer& peer, Error error);
  // The peer departs: everywhere, itself included, if this rank is a required one.
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
