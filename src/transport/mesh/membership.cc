#include "transport/mesh/membership.h"

#include <string>
#include <utility>

#include "transport/mesh/rank_name.h"
#include "transport/process/machine.h"

namespace deltawire {

void Membership::set_optional(std::span<const int> ranks) noexcept {
  for (const int rank : ranks) {
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
  const ControlMessage news = Dropped{peer.rank, error.code, error.message, error.suspect};
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
    consensus_.fail({ErrorCode::kMismatch,
                     rank_name(from.rank) + " has dropped " + rank_name(dropped.rank) +
                         ", which is not optional on " + rank_name(self) +
                         "; name the same optional ranks on all, before the first operation (it says of " +
                         rank_name(dropped.rank) + ": " + dropped.text + ")",
                     from.rank},
                    self);
    return;
  }
  if (dropped.rank == self) {
    consensus_.fail({dropped.code,
                     rank_name(from.rank) + " has dropped " + rank_name(self) +
                         ", this one, and the others go on without it: " + dropped.text,
                     self},
                    from.rank);
    return;
  }
  Peer& gone = peers_[dropped.rank];
  const int suspect = dropped.suspect < 0 ? dropped.rank : dropped.suspect;
  blame(gone, {dropped.code, reported(from.rank, dropped.text), suspect});
  // It was blamed, but lives.
  if (gone.departure && gone.departure->suspect == from.rank) waiters_.renew_all(MachineClock::now());
}

bool Membership::blames_required(const Peer& dropped) const noexcept {
  const int suspect = dropped.departure->suspect;
  return peers_.has(suspect) && !peers_[suspect].is_optional;
}

}  // namespace deltawire
