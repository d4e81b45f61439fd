#include "deltawire/workers.h"

#include "base/float_environment.h"

namespace deltawire {

Workers::Workers(int threads) {
  threads_.reserve(static_cast<std::size_t>(threads - 1));
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this] { thread_main(); });
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

// A task is a block of some 16,384 values: taking it under a lock costs nothing beside it.
void Workers::take_tasks(std::unique_lock<std::mutex>& lock) {
  while (next_ < work_.count) {
    const std::size_t index = next_++;
    ++running_;
    lock.unlock();
    work_.call(work_.context, index);
    lock.lock();
    --running_;
  }
  if (running_ == 0) done_.notify_one();
}

void Workers::run(const Work& work) {
  std::unique_lock lock(mutex_);
  work_ = work;
  next_ = 0;
  changed_.notify_all();
  take_tasks(lock);
  done_.wait(lock, [this] { return running_ == 0; });
}

void Workers::thread_main() {
  const FloatEnvironment environment;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (next_ < work_.count) take_tasks(lock);
    changed_.wait(lock, [this] { return stopping_ || next_ < work_.count; });
  }
}

}  // namespace deltawire
