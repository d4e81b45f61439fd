// Threads that share the work of one call: callers of a codec, and owners of a channel, may provide some. No
// byte depends on them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "deltawire/export.h"

namespace deltawire {

// A fixed number of threads that sleep while there is no work.
// Thread rule: any thread may call share(); if the workers are busy, it does its work alone.
class DELTAWIRE_API Workers {
 public:
  // The process's workers, threads_of_process() threads, created at the first call and kept until the process
  // ends; null if that is 1. A forked child has its own. Throws std::bad_alloc.
  static std::shared_ptr<Workers> of_process();

  // The processors that this process may use, by its affinity and its control groups' quotas (rounded up).
  static int processors();

  // OMP_NUM_THREADS, as PyTorch reads it: torchrun sets it to 1 if several ranks share a machine. If it isn't
  // set: processors(), divided by the ranks on this machine (LOCAL_WORLD_SIZE).
  // At most 8: beyond that, memory bandwidth is the limit.
  static int threads_of_process();

  // The calling thread counts: `threads` - 1 are started, or as many as the system allows. REQUIRES: threads
  // >= 1. Throws std::bad_alloc.
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // How many threads share() uses, the calling one included.
  static int threads(const Workers* workers) noexcept {
    return workers == nullptr ? 1 : static_cast<int>(workers->threads_.size()) + 1;
  }

  // Calls task(0) ... task(count - 1), each once, in any order and from any of the threads; returns when all
  // have returned. On the workers' threads a task runs in a FloatEnvironment, on this thread in the caller's
  // floating-point mode. Without workers (null), or while they are busy, all run here, in order. Allocates
  // nothing. REQUIRES: task throws nothing.
  template <class Task>
  static void share(Workers* workers, std::size_t count, const Task& task) {
    if (count > 1 && threads(workers) > 1) {
      workers->run(
          {[](const void* context, std::size_t index) { (*static_cast<const Task*>(context))(index); }, &task,
           count});
      return;
    }
    for (std::size_t i = 0; i < count; ++i) task(i);
  }

 private:
  struct Work {
    void (*call)(const void* context, std::size_t index) = nullptr;
    const void* context = nullptr;
    std::size_t count = 0;
  };

  void run(const Work& work);
  void thread_main();
  void take_tasks(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable changed_;  // there is work, or the workers are to stop
  std::condition_variable done_;
  Work work_;
  std::size_t next_ = 0;     // the first task of work_ that no thread has taken
  std::size_t running_ = 0;  // tasks taken and not yet returned
  bool shared_ = false;      // a call of share() is running
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace deltawire
