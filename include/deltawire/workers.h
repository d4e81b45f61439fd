// Threads that share the work of one call: whoever calls a codec, or owns a channel, may bring some along. No
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

// A fixed number of threads that sleep while there is nothing to share.
// Thread rule: any thread may share; who finds the workers at another's work does its own alone.
class DELTAWIRE_API Workers {
 public:
  // Those of the process, threads_of_process() of them, made when first asked for and there until it ends;
  // null where that is 1. A child that was forked has its own. Errors: std::system_error where no thread can
  // be started, std::bad_alloc.
  static std::shared_ptr<Workers> of_process();

  // OMP_NUM_THREADS, as PyTorch reads it: torchrun sets it to 1 where several ranks share a machine. Where it
  // isn't set, the processors that this process may use by the ranks on this machine (LOCAL_WORLD_SIZE). At
  // most 8: beyond, memory is the limit.
  static int threads_of_process();

  // The calling thread counts: `threads` - 1 are started. REQUIRES: threads >= 1.
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  // How many threads share() uses, the calling one included.
  static int threads(const Workers* workers) noexcept {
    return workers == nullptr ? 1 : static_cast<int>(workers->threads_.size()) + 1;
  }

  // Calls task(0) ... task(count - 1), each once, in any order and from any of the threads; returns when all
  // have returned. On the workers' threads a task is in a FloatEnvironment, on this one as the caller is.
  // Without workers (null), or while they are at another's work, all run here in order. Allocates nothing.
  // REQUIRES: task throws nothing.
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
  std::condition_variable changed_;  // there is work, or the end has come
  std::condition_variable done_;
  Work work_;
  std::size_t next_ = 0;     // of work_: the first task that nobody has taken
  std::size_t running_ = 0;  // tasks taken and not yet returned
  bool shared_ = false;      // somebody's work is under way
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace deltawire
