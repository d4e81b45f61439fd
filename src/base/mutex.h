// A mutex that clang can tell is held, and which lock guards what, for clang to check (-Wthread-safety);
// other compilers skip it. std::mutex has no such annotations in libstdc++.
#pragma once

#include <mutex>

#ifdef __clang__
#define DELTAWIRE_THREAD_ATTRIBUTE(text) __attribute__((text))
#else
#define DELTAWIRE_THREAD_ATTRIBUTE(text)
#endif

// Of a class: a lock; an object that holds one while it lives.
#define DELTAWIRE_CAPABILITY(name) DELTAWIRE_THREAD_ATTRIBUTE(capability(name))
#define DELTAWIRE_SCOPED_CAPABILITY DELTAWIRE_THREAD_ATTRIBUTE(scoped_lockable)
// Of a member: only whoever holds the lock reads and writes it.
#define DELTAWIRE_GUARDED_BY(lock) DELTAWIRE_THREAD_ATTRIBUTE(guarded_by(lock))
// Of a function, behind its noexcept: the caller holds the lock; it holds it afterwards; or no longer.
#define DELTAWIRE_REQUIRES(lock) DELTAWIRE_THREAD_ATTRIBUTE(requires_capability(lock))
#define DELTAWIRE_ACQUIRE(...) DELTAWIRE_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define DELTAWIRE_RELEASE(...) DELTAWIRE_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
// Of a function that clang can't follow. Its comment says why it is right.
#define DELTAWIRE_UNCHECKED_LOCKS DELTAWIRE_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace deltawire {

class DELTAWIRE_CAPABILITY("mutex") Mutex {
 public:
  void lock() DELTAWIRE_ACQUIRE() { mutex_.lock(); }
  void unlock() DELTAWIRE_RELEASE() { mutex_.unlock(); }

 private:
  friend class MutexLock;

  std::mutex mutex_;
};

// Holds a mutex as long as it lives.
class DELTAWIRE_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) DELTAWIRE_ACQUIRE(mutex) : lock_(mutex.mutex_) {}
  ~MutexLock() DELTAWIRE_RELEASE() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  // For waits, and for what gives the lock up and takes it again within a call: clang sees it held
  // throughout.
  std::unique_lock<std::mutex>& standard() noexcept { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace deltawire
