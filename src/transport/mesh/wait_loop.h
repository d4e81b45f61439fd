// What a waiting thread does: it drives the streams or sleeps, asks which ranks are alive, and ends at its
// deadline.
#pragma once

#include <mutex>

#include "transport/mesh/streams.h"

namespace deltawire {

class WaitLoop {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // All of them must outlive it.
  WaitLoop(Waiters& waiters, Driver& driver, Consensus& consensus, WaitAnnouncer& announcer,
           FailureJudge& judge, ControlReader& control, Streams& streams) noexcept
      : waiters_(waiters),
        driver_(driver),
        consensus_(consensus),
        announcer_(announcer),
        judge_(judge),
        control_(control),
        streams_(streams) {}

  // Blocks until the wait has ended or the mesh has failed, perhaps because of this wait.
  void block(Lock& lock, Waiter& waiter);

 private:
  bool is_over(const Waiter& waiter) const noexcept {
    return consensus_.failed() || waiters_.has_ended(waiter);
  }
  void leave(Waiter& waiter) noexcept;
  void wait(Lock& lock, Waiter& waiter);
  void meet_deadline(Waiter& waiter);

  Waiters& waiters_;
  Driver& driver_;
  Consensus& consensus_;
  WaitAnnouncer& announcer_;
  FailureJudge& judge_;
  ControlReader& control_;
  Streams& streams_;
};

}  // namespace deltawire
