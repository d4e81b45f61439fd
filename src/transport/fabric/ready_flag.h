// A condition that ppoll() can wait for: a descriptor that is readable, or writable, while the flag is set.
#pragma once

#include <cstdint>

#include <sys/eventfd.h>
#include <unistd.h>

#include "transport/process/fork_guard.h"

namespace deltawire {

// Thread rule: set() by one thread at a time; the descriptor may be polled meanwhile.
class ReadyFlag {
 public:
  enum class Shown : std::uint8_t { kReadable, kWritable };

  // Starts as not ready (kReadable) or ready (kWritable). Without a descriptor: ok() is false, errno set.
  explicit ReadyFlag(Shown shown)
      : shown_(shown),
        ready_(shown == Shown::kWritable),
        fd_(GuardedFd::open([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {}

  bool ok() const noexcept { return static_cast<bool>(fd_); }
  int fd() const noexcept { return fd_.get(); }

  void set(bool ready) noexcept {
    if (ready == ready_) return;
    ready_ = ready;
    // An eventfd is readable while its count is above 0, and writable while it is below its maximum.
    const bool counting = shown_ == Shown::kReadable ? ready : !ready;
    std::uint64_t count = shown_ == Shown::kReadable ? 1 : UINT64_MAX - 1;
    if (counting) {
      (void)!::write(fd_.get(), &count, sizeof count);
    } else {
      (void)!::read(fd_.get(), &count, sizeof count);
    }
  }

 private:
  Shown shown_;
  bool ready_;
  GuardedFd fd_;
};

}  // namespace deltawire
