#include "transport/process/machine.h"

#include <algorithm>
#include <ctime>

#include <unistd.h>

namespace deltawire {

void WakeablePoll::wait(std::span<pollfd> entries, Deadline until) noexcept {
  entries.front() = {eventfd_.get(), POLLIN, 0};
  if (simulated_machine != nullptr) [[unlikely]]
    return simulated_machine->poll(this, entries, until);
  timespec timeout{};
  if (until != Deadline::max()) {
    const auto left = std::max(until - Clock::now(), Clock::duration{0});
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    timeout.tv_sec = static_cast<time_t>(seconds.count());
    timeout.tv_nsec = static_cast<long>(std::chrono::nanoseconds(left - seconds).count());
  }
  const timespec* const time = until == Deadline::max() ? nullptr : &timeout;
  // An interrupted or failed poll counts as "nothing ready"; the caller will poll again.
  if (::ppoll(entries.data(), entries.size(), time, nullptr) < 0) {
    for (pollfd& entry : entries) entry.revents = 0;
  }
}

void WakeablePoll::wake() noexcept {
  if (simulated_machine != nullptr) [[unlikely]]
    return simulated_machine->notify(this);
  const std::uint64_t one = 1;
  (void)!::write(eventfd_.get(), &one, sizeof one);
}

void WakeablePoll::clear() noexcept {
  if (simulated_machine != nullptr) [[unlikely]]
    return;
  std::uint64_t count = 0;
  (void)!::read(eventfd_.get(), &count, sizeof count);
}

}  // namespace deltawire
