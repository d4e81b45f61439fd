// Releases the engine's lock while the kernel copies much.
#pragma once

#include <cassert>
#include <cstddef>
#include <mutex>

#include "transport/links/link.h"
#include "transport/process/machine.h"

namespace deltawire {

// Counts the calls that run without the lock; the memory that they copy must stay valid until they return.
class CallsInKernel {
 public:
  void begin() noexcept { ++count_; }
  void end() noexcept {
    assert(count_ > 0);
    if (--count_ == 0) none_.notify_all();
  }
  void await_none(std::unique_lock<std::mutex>& lock) {
    none_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  int count_ = 0;
  Condition none_;
};

class ScopedUnlock {
 public:
  // Copying less takes about as long as releasing the lock and taking it again.
  static constexpr std::size_t kMuch = std::size_t{32} << 10;

  ScopedUnlock() = default;  // never releases a lock
  ScopedUnlock(std::unique_lock<std::mutex>& lock, CallsInKernel& calls) noexcept
      : lock_(&lock), calls_(&calls) {}

  // Runs `call`, which moves at most `bytes` bytes, without the lock if that is much.
  IoResult run(std::size_t bytes, auto call) noexcept {
    if (lock_ == nullptr || bytes < kMuch) return call();
    assert(lock_->owns_lock());
    calls_->begin();
    lock_->unlock();
    const IoResult result = call();
    lock_->lock();
    calls_->end();
    return result;
  }

 private:
  std::unique_lock<std::mutex>* lock_ = nullptr;
  CallsInKernel* calls_ = nullptr;
};

}  // namespace deltawire
