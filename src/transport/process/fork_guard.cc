#include "transport/process/fork_guard.h"

#include <atomic>
#include <vector>

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

namespace deltawire {
namespace {

struct Registry {
  Mutex mutex;
  std::vector<int> fds DELTAWIRE_GUARDED_BY(fork_mutex());
  std::atomic<std::uint64_t> generation{1};
};

Registry& registry();

// From here to one of the other two the lock is held.
void before_fork() DELTAWIRE_UNCHECKED_LOCKS {
  registry().mutex.lock();
}

void in_parent() DELTAWIRE_UNCHECKED_LOCKS {
  registry().mutex.unlock();
}

// Makes only calls that are safe in the child of a threaded process: nothing is allocated or freed.
void in_child() DELTAWIRE_UNCHECKED_LOCKS {
  Registry& all = registry();
  for (const int fd : all.fds) ::close(fd);
  all.fds.clear();
  all.generation.fetch_add(1);
  all.mutex.unlock();
}

// Never destroyed: the process may fork while it exits.
Registry& registry() {
  static Registry* const all = [] {
    auto* made = new Registry;
    ::pthread_atfork(before_fork, in_parent, in_child);
    return made;
  }();
  return *all;
}

}  // namespace

std::uint64_t fork_generation() noexcept {
  return registry().generation.load(std::memory_order_relaxed);
}

Mutex& fork_mutex() {
  return registry().mutex;
}

GuardedFd::GuardedFd(int fd) : fd_(fd), generation_(fork_generation()) {
  if (fd < 0) return;
  try {
    registry().fds.push_back(fd);
  } catch (...) {
    ::close(fd);
    throw;
  }
}

std::array<GuardedFd, 2> GuardedFd::open_socket_pair() {
  const MutexLock lock(fork_mutex());
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) return {};
  registry().fds.reserve(registry().fds.size() + 2);
  return {GuardedFd(ends[0]), GuardedFd(ends[1])};
}

void GuardedFd::reset() noexcept {
  if (fd_ < 0) return;
  const int fd = std::exchange(fd_, -1);
  if (generation_ != fork_generation()) return;
  const MutexLock lock(fork_mutex());
  std::erase(registry().fds, fd);
  ::close(fd);
}

}  // namespace deltawire
