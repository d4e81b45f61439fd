#include "transport/mesh/wait_loop.h"

#include <algorithm>
#include <cassert>

#include "transport/process/machine.h"

namespace deltawire {

void WaitLoop::block(Lock& lock, Waiter& waiter) {
  assert(lock.owns_lock());
  if (is_over(waiter)) return;
  waiters_.add(waiter, announcer_.anyone_waits());
  // Ends the wait also if announcing it runs out of memory.
  struct Leaves {
    WaitLoop& loop;
    Waiter& waiter;
    ~Leaves() { loop.leave(waiter); }
  };
  {
    const Leaves leaves{*this, waiter};
    driver_.take_over(waiter);
    wait(lock, waiter);
  }
  // A wait that was renewed has announced itself before, too.
  if (!consensus_.failed()) announcer_.update();
}

void WaitLoop::leave(Waiter& waiter) noexcept {
  if (driver_.is_driven_by(waiter)) {
    driver_.hand_back(consensus_.failed() || waiters_.all().size() > 1 || streams_.is_midway());
  }
  waiters_.remove(waiter);
}

void WaitLoop::wait(Lock& lock, Waiter& waiter) {
  while (!is_over(waiter)) {
    const Deadline now = MachineClock::now();
    if (Peer* gone = judge_.hopeless(waiter)) {
      judge_.blame_left(*gone);
    } else if (now >= waiter.deadline && driver_.is_driven_by(waiter) && waiter.looked_at < waiter.deadline) {
      // Messages that have arrived by now are not late, and no other thread may have read them.
      waiter.looked_at = now;
      driver_.drive(lock, streams_, now);
    } else if (now >= waiter.deadline) {
      meet_deadline(waiter);
    } else if (!waiter.announced && now >= waiter.announce_at) {
      announcer_.ask(waiter, MachineClock::now());
    } else {
      const Deadline wake_at =
          waiter.announced ? waiter.deadline : std::min(waiter.deadline, waiter.announce_at);
      if (driver_.is_driven_by(waiter)) {
        driver_.drive(lock, streams_, wake_at);
      } else {
        waiter.changed.wait_until(lock, wake_at);
      }
    }
  }
}

void WaitLoop::meet_deadline(Waiter& waiter) {
  assert(!is_over(waiter));
  control_.read_all();
  if (is_over(waiter) || judge_.extend(waiter, MachineClock::now())) return;
  // This rank itself may have been frozen: then the verdict of the others has already arrived.
  control_.read_all();
  if (!is_over(waiter)) judge_.time_out(waiter, MachineClock::now());
}

}  // namespace deltawire
