// Threads that share the work of one call: a codec hands out independent blocks, whoever calls the codec has
// lent the threads. The codec's interface doesn't know of them, and its bytes don't depend on them.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace deltawire {

// A fixed number of threads that sleep while there is nothing to share.
// Thread rule: lend and share from one thread at a time.
class Workers {
 public:
  // The calling thread counts: `threads` - 1 are started. REQUIRES: threads >= 1.
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const noexcept { return static_cast<int>(threads_.size()) + 1; }

  // While it lives, share() on this thread uses the workers.
  class Lent {
   public:
    explicit Lent(Workers* workers) noexcept;  // null: none
    ~Lent();
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;

   private:
    Workers* before_;
  };

  // How many threads share() would use here, the calling one included.
  static int lent() noexcept;

  // Calls task(0) ... task(count - 1), each once, in any order and from any of the lent threads; returns when
  // all have returned. On the workers' threads a task is in a FloatEnvironment, on this one as the caller is.
  // Without workers, or inside a task, all run here in order. Allocates nothing. REQUIRES: task throws
  // nothing.
  template <class Task>
  static void share(std::size_t count, const Task& task) {
    run({[](const void* context, std::size_t index) { (*static_cast<const Task*>(context))(index); }, &task,
         count});
  }

 private:
  struct Work {
    void (*call)(const void* context, std::size_t index) = nullptr;
    const void* context = nullptr;
    std::size_t count = 0;
  };

  static void run(const Work& work);
  void run_here_and_there(const Work& work);
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
