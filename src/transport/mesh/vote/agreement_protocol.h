// The agreement between the ranks, its messages, and the time that they may take.
//
// If an allocation fails, nothing is half done: the change and its messages are prepared on a copy; swapping
// it in and sending the messages does not allocate.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

#include "transport/mesh/peers.h"
#include "transport/mesh/vote/agreement.h"

namespace deltawire {

class AgreementProtocol {
 public:
  // How long a rank may take to announce its verdict when the mesh has failed. A living rank needs
  // milliseconds; an interrupt (Ctrl-C) waits this long for a frozen one.
  static constexpr std::chrono::milliseconds kSettleTime{3000};
  // The pause before a failed allocation is tried again.
  static constexpr std::chrono::milliseconds kMemoryPause{1};

  // `peers` must outlive it.
  explicit AgreementProtocol(Peers& peers)
      : peers_(peers), state_(peers.self(), peers.world_size()), next_(state_) {}

  const Agreement& state() const noexcept { return state_; }
  // The mesh has failed, and this rank knows all the verdicts that it ever will.
  bool has_concluded() const noexcept { return state_.failed() && state_.concluded(); }

  // Changes the agreement by `act`, and sends `first` and then the agreement's messages.
  template <class Act>
  void change(Act act, const ControlMessage* first = nullptr) {
    next_ = state_;
    act(next_);
    adopt_next(first);
  }
  // As long as nothing fails, there are only votes, which need no copy. False: it violates the protocol.
  bool receive_vote(int peer, const Vote& vote) { return state_.receive(peer, vote); }
  // All have voted: state().may_count().
  void count() { state_.count(); }

  // After a failure: until when ranks may send their rounds and verdicts.
  Deadline settle_by() const noexcept { return settle_by_; }
  void begin_to_settle() noexcept;
  // Continues without the ranks that have not answered, and gives the others more time. If an allocation
  // fails, it is to be called again soon.
  void give_up_waiting();

 private:
  void adopt_next(const ControlMessage* first);

  Peers& peers_;
  Agreement state_;
  Agreement next_;               // the copy to change; it keeps its memory between votes
  std::vector<std::byte> said_;  // the encoded messages
  Deadline settle_by_{};
};

}  // namespace deltawire
