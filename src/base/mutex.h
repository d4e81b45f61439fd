// A mutex that clang can tell is held (base/thread_annotations.h).
#pragma once

#include <mutex>

#include "base/thread_annotations.h"

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
