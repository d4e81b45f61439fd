// The one communication thread over a reducer. One, because two-stage exchanges that are chained by callbacks
// run in the order of completion, not of issue: wrong sums or hangs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "base/errors.h"
#include "base/mutex.h"
#include "deltawire/session.h"
#include "deltawire/transport.h"
#include "reduce/bucket_tensors.h"
#include "reduce/wakeable_reducer.h"

namespace deltawire {

// Buckets are begun in the order of submission, up to a few of one step in flight, and `done` is called in
// that order from the thread. After the first error every later bucket fails with it.
// Thread rule: any thread may call any member. After stop() the transport is not used.
class ReduceQueue {
 public:
  // Both must outlive the queue, and nobody else may use the reducer meanwhile, but through while_idle.
  // `compares`: the first bucket's tensors with those of the other ranks.
  ReduceQueue(WakeableReducer& reducer, Transport& transport, std::size_t max_in_flight = 4,
              bool compares = false);
  ~ReduceQueue() { stop(); }

  // As Session::submit.
  void submit(const Bucket& bucket, const Step& step, std::chrono::milliseconds timeout, Session::Done done);

  // What `call` returns, a Result or a Status; until then the thread leaves the reducer alone. kState while
  // buckets are in flight: submitted, and neither finished nor failed. After a failure they all fail at once,
  // which is waited for, so that a folding reducer has kept them; not from `done`. A step that is open then,
  // though none of its buckets is in flight, is taken back first.
  template <class Call>
  auto while_idle(Call call) -> decltype(call()) {
    MutexLock lock(mutex_);
    if (in_flight_ > 0 && !on_own_thread() && (error_ || transport_has_failed())) {
      idle_.wait(lock.standard(), [&]() DELTAWIRE_REQUIRES(mutex_) { return in_flight_ == 0; });
    }
    if (in_flight_ > 0) {
      return wrong_state("buckets are in flight; save, load, mask and explain between steps");
    }
    end_lost_step();
    return call();
  }

  // Waits until no bucket is in flight, at most until the deadline; how many still are.
  std::size_t wait_idle(Deadline deadline);

  // From here on submit fails.
  void refuse_more();

  // Refuses more, finishes what was submitted (or fails it by its deadline), joins the thread and aborts a
  // step that is still open; from `done` it only refuses. At most one other thread may call it at the same
  // time.
  void stop();

  bool on_own_thread() const noexcept { return own_id_ == std::this_thread::get_id(); }

 private:
  struct Job {
    OwnTensors tensors;
    std::span<Pairs> pair_means;
    Step step;
    std::chrono::milliseconds timeout{};
    Session::Done done;
  };

  Result<OwnTensors> take_list(std::span<const Named> tensors);
  void keep_list(OwnTensors list) noexcept;
  bool accept(Job& job);
  std::optional<Job> take();
  void run();
  void work();
  void begin(Job job);
  void finish();
  Job take_oldest() noexcept;
  void fail_all(Error error);
  bool transport_has_failed() const noexcept;
  void end_lost_step() noexcept DELTAWIRE_REQUIRES(mutex_);
  Result<Report> failure() const noexcept;

  WakeableReducer& reducer_;
  Transport& transport_;
  const std::size_t max_in_flight_;
  Mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::vector<Job> waiting_ DELTAWIRE_GUARDED_BY(mutex_);  // empty when all of them are taken
  std::size_t taken_ DELTAWIRE_GUARDED_BY(mutex_) = 0;     // of the waiting, the first so many
  std::size_t in_flight_ DELTAWIRE_GUARDED_BY(mutex_) = 0;
  std::optional<Step> open_ DELTAWIRE_GUARDED_BY(mutex_);  // the latest finished bucket, if it isn't the last
  bool stopping_ DELTAWIRE_GUARDED_BY(mutex_) = false;
  std::vector<OwnTensors> lists_ DELTAWIRE_GUARDED_BY(mutex_);  // of earlier buckets, to copy no name twice
  std::size_t lists_made_ DELTAWIRE_GUARDED_BY(mutex_) = 0;     // lists_ has room for so many
  std::vector<Job> begun_;                                      // the thread's own
  bool is_first_;               // whether the next bucket is the first, whose tensors are compared; so, too
  std::optional<Error> error_;  // the first; written by the thread, with mutex_
  std::uint64_t failed_step_ = 0;  // that it ended; the thread's own
  std::thread thread_;             // it uses all of the above
  std::thread::id own_id_;         // which outlives the join
};

}  // namespace deltawire
