#include "transport/process/fork_guard.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <vector>

#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

namespace deltawire {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<int> fds;
  std::atomic<std::uint64_t> generation{1};
};

Registry& registry();

void before_fork() {
  registry().mutex.lock();
}

void in_parent() {
  registry().mutex.unlock();
}

// Makes only calls that are safe in the child of a threaded process: nothing is allocated or freed.
void in_child() {
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

std::unique_lock<std::mutex> GuardedFd::lock_registry() {
  return std::unique_lock<std::mutex>(registry().mutex);
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
  const std::unique_lock<std::mutex> lock = lock_registry();
  std::array<int, 2> ends{-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) return {};
  registry().fds.reserve(registry().fds.size() + 2);
  return {GuardedFd(ends[0]), GuardedFd(ends[1])};
}

void GuardedFd::reset() noexcept {
  if (fd_ < 0) return;
  const int fd = std::exchange(fd_, -1);
  if (generation_ != fork_generation()) return;
  Registry& all = registry();
  const std::lock_guard<std::mutex> lock(all.mutex);
  std::erase(all.fds, fd);
  ::close(fd);
}

}  // namespace deltawire
