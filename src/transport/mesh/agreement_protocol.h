// The agreement between the ranks, the messages about it and the time that they may take.
//
// Where memory fails, nothing is done by half: what the agreement does, and the messages that say so, are
// prepared on a copy; only then it counts and is sent, which needs no memory.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "transport/mesh/agreement.h"
#include "transport/mesh/peers.h"

namespace deltawire {

class AgreementProtocol {
 public:
  // How long a rank may take to say where it stands when the mesh has failed. A living one takes
  // milliseconds; this is what an interrupt (Ctrl-C) waits for a frozen one.
  static constexpr std::chrono::milliseconds kSettleTime{3000};
  // Before memory that could not be had is asked for again.
  static constexpr std::chrono::milliseconds kMemoryPause{1};

  // `peers` outlive it.
  explicit AgreementProtocol(Peers& peers)
      : peers_(peers), state_(peers.self(), peers.world_size()), next_(state_) {}

  const Agreement& state() const noexcept { return state_; }
  // The mesh has failed, and this rank knows where all others stand, as far as it ever will.
  bool has_concluded() const noexcept { return state_.failed() && state_.concluded(); }

  // What `act` makes of the agreement, and sends what that has to say, behind `first`.
  template <class Act>
  void change(Act act, const ControlMessage* first = nullptr) {
    next_ = state_;
    act(next_);
    adopt_next(first);
  }
  // As long as nothing fails, there are only votes: no copies for them. False: no rank that keeps to the
  // protocol would send it.
  bool receive_vote(int peer, const Vote& vote) { return state_.receive(peer, vote); }
  // REQUIRES: state().may_count().
  void count() { state_.count(); }

  // After a failure: when time is up for those that have not said what they know, or where they stand.
  Deadline settle_by() const noexcept { return settle_by_; }
  void begin_to_settle() noexcept;
  // Goes on without them, and gives the others their time again. Where memory fails, soon again.
  void give_up_waiting();

 private:
  void adopt_next(const ControlMessage* first);

  Peers& peers_;
  Agreement state_;
  Agreement next_;               // where it is made; with the next, it keeps its memory between votes
  std::vector<std::byte> said_;  // the messages about it
  Deadline settle_by_{};
};

}  // namespace deltawire
