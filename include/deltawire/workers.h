// Threads that share the work of one call: whoever calls a codec, or owns a channel, may bring some along. No
// byte depends on them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace deltawire {

// A fixed number of threads that sleep while there is nothing to share.
// Thread rule: one share() at a time.
class Workers {
 public:
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
  // Without workers (null) all run here in order. Allocates nothing. REQUIRES: task throws nothing and does
  // not share with the same workers.
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
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace deltawire
