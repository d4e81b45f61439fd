// Descriptors that a forked child doesn't keep. A child that inherits a socket (a data-loader worker, say)
// would hold the connection open after its parent was killed, and so hide the death from the other ranks.
//
// Thread rule: any thread; one GuardedFd is used by one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "base/mutex.h"

namespace deltawire {

// Grows by one in every forked child: an object that remembers it can tell whether it was forked.
std::uint64_t fork_generation() noexcept;

// Held while a descriptor is opened or closed, and over every fork.
Mutex& fork_mutex();

class GuardedFd {
 public:
  GuardedFd() noexcept = default;
  GuardedFd(GuardedFd&& other) noexcept { swap(other); }
  GuardedFd& operator=(GuardedFd&& other) noexcept {
    GuardedFd taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~GuardedFd() { reset(); }

  // Owns what `open()` returns: a new descriptor, or -1 with errno set. No fork can happen in between.
  // REQUIRES: `open` doesn't block.
  template <class Open>
  static GuardedFd open(Open&& open_descriptor) {
    const MutexLock lock(fork_mutex());
    return GuardedFd(open_descriptor());
  }

  // Both ends of a non-blocking stream socket pair; {-1, -1} with errno set if it can't be opened.
  static std::array<GuardedFd, 2> open_socket_pair();

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

  // Closes it, except in a forked child, where it is closed already and the number may be in use again.
  void reset() noexcept;

 private:
  explicit GuardedFd(int fd) DELTAWIRE_REQUIRES(fork_mutex());  // registers
  void swap(GuardedFd& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(generation_, other.generation_);
  }

  int fd_ = -1;
  std::uint64_t generation_ = 0;
};

}  // namespace deltawire
