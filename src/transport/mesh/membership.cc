#include "transport/mesh/membership.h"

#include <cassert>
#include <string>
#include <utility>

#include "transport/process/machine.h"

namespace deltawire {

void Membership::set_optional(std::span<const int> ranks) noexcept {
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

void Membership::blame(Peer& peer, Error error) {
  if (peer.is_optional) {
    drop(peer, std::move(error));
  } else {
    consensus_.fail(std::move(error), peers_.self());
  }
}

void Membership::drop(Peer& peer, Error error) {
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

void Membership::on_dropped(const Peer& from, const Dropped& dropped) {
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

bool Membership::blames_required(const Peer& dropped) const noexcept {
  assert(dropped.departure.has_value());
  const int suspect = dropped.departure->suspect;
  return peers_.has(suspect) && !peers_[suspect].is_optional;
}

}  // namespace deltawire
