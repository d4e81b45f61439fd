// The one communication thread over a reducer. One, because two-stage exchanges that are chained by callbacks
// run in the order of completion, not of issue: wrong sums or hangs.
#pragma once

#include <algorithm>
#include <cassert>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <new>
#include <optional>
#include <span>
#include <thread>
#include <utility>
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
              bool compares = false)
      : reducer_(reducer), transport_(transport), max_in_flight_(max_in_flight), is_first_(compares) {
    begun_.reserve(max_in_flight_);  // so that the thread needs no memory of its own
    waiting_.reserve(kUsuallyWaiting);
    thread_ = std::thread([this] { run(); });
    own_id_ = thread_.get_id();
  }

  ~ReduceQueue() { stop(); }

  // As Session::submit.
  void submit(const Bucket& bucket, const Step& step, std::chrono::milliseconds timeout, Session::Done done) {
    Job job;
    job.done = std::move(done);
    bool distinct = true;
    const Result<bool> accepted = or_no_memory("submitting a bucket", [&]() -> Result<bool> {
      Result<OwnTensors> list = take_list(bucket.tensors);
      distinct = list.has_value();
      if (!distinct) return forward_error(list);
      job.tensors = *std::move(list);
      job.tensors.assign(bucket.tensors);
      job.pair_means = bucket.pair_means;
      job.step = step;
      job.timeout = timeout;
      return accept(job);
    });
    if (!accepted && distinct) {
      // The bucket is missing here: the others need not wait for it until their deadlines.
      const MutexLock lock(mutex_);
      if (!stopping_) transport_.abort(accepted.error());
    }
    if (!accepted) {
      job.done(forward_error(accepted));
    } else if (!*accepted) {
      job.done(wrong_state("the session is closed; open a new one to go on"));
    }
  }

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
  std::size_t wait_idle(Deadline deadline) {
    MutexLock lock(mutex_);
    idle_.wait_until(lock.standard(), deadline, [&]() DELTAWIRE_REQUIRES(mutex_) { return in_flight_ == 0; });
    return in_flight_;
  }

  // From here on submit fails.
  void refuse_more() {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }

  // Refuses more, finishes what was submitted (or fails it by its deadline), joins the thread and aborts a
  // step that is still open; from `done` it only refuses. At most one other thread may call it at the same
  // time.
  void stop() {
    refuse_more();
    if (on_own_thread()) return;
    if (thread_.joinable()) thread_.join();
    const MutexLock lock(mutex_);
    end_lost_step();
  }

  bool on_own_thread() const noexcept { return own_id_ == std::this_thread::get_id(); }

 private:
  static constexpr std::size_t kUsuallyWaiting = 32;
  static constexpr std::size_t kMostLists = 1024;  // for programs whose buckets are others in every step

  struct Job {
    OwnTensors tensors;
    std::span<Pairs> pair_means;
    Step step;
    std::chrono::milliseconds timeout{};
    Session::Done done;
  };

  // The list that an earlier bucket of these tensors left, or another one. kInvalidArgument for tensors that
  // can't be in one bucket: nothing has happened then.
  Result<OwnTensors> take_list(std::span<const Named> tensors) {
    const MutexLock lock(mutex_);
    auto found = std::ranges::find_if(lists_, [&](const OwnTensors& list) { return list.same(tensors); });
    const bool known = found != lists_.end();
    const OwnTensors none;
    RETURN_IF_ERROR((known ? *found : none).check_distinct(tensors, known));
    if (found == lists_.end() && lists_.size() >= kMostLists) found = lists_.begin();
    if (found == lists_.end()) {
      lists_.reserve(lists_made_ + 1);
      ++lists_made_;
      return OwnTensors();
    }
    OwnTensors list = std::move(*found);
    lists_.erase(found);
    return list;
  }

  void keep_list(OwnTensors list) noexcept {
    const MutexLock lock(mutex_);
    assert(lists_.size() < lists_.capacity());
    lists_.push_back(std::move(list));
  }

  // False after stop().
  bool accept(Job& job) {
    const MutexLock lock(mutex_);
    if (stopping_) return false;
    if (taken_ > 0 && waiting_.size() == waiting_.capacity()) {
      waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(taken_));
      taken_ = 0;
    }
    waiting_.push_back(std::move(job));
    ++in_flight_;
    changed_.notify_one();
    // The thread may be waiting for a bucket in flight: this one can begin meanwhile.
    transport_.wake();
    return true;
  }

  // The next job, if it may be begun now: its step is the open one, or nothing is in flight.
  std::optional<Job> take() {
    MutexLock lock(mutex_);
    const auto has_news = [&]() DELTAWIRE_REQUIRES(mutex_) { return stopping_ || !waiting_.empty(); };
    if (begun_.empty()) changed_.wait(lock.standard(), has_news);
    if (waiting_.empty()) return std::nullopt;
    assert(taken_ < waiting_.size());
    Job& next = waiting_[taken_];
    const bool other_step = !begun_.empty() && begun_.back().step.number != next.step.number;
    if (other_step || begun_.size() >= max_in_flight_) return std::nullopt;
    std::optional<Job> job(std::move(next));
    if (++taken_ == waiting_.size()) {
      waiting_.clear();
      taken_ = 0;
    }
    return job;
  }

  void run() {
    while (true) {
      if (std::optional<Job> job = take()) {
        begin(std::move(*job));
      } else if (!begun_.empty()) {
        work();
      } else {
        return;  // stopping, and nothing is left
      }
    }
  }

  // Until the oldest bucket is finished, or something may have been submitted.
  void work() {
    assert(!begun_.empty());
    Result<bool> complete = reducer_.advance();
    if (!complete) return fail_all(std::move(complete.error()));
    if (*complete) finish();
  }

  void begin(Job job) {
    if (error_) {
      {
        const MutexLock lock(mutex_);  // nobody saves meanwhile
        if (job.step.number == failed_step_) {
          reducer_.keep({job.tensors.all(), job.pair_means}, job.step, transport_);
        }
        assert(in_flight_ > 0);
        if (--in_flight_ == 0) idle_.notify_all();
      }
      job.done(failure());
      return;
    }
    assert(begun_.size() < max_in_flight_);
    begun_.push_back(std::move(job));
    Job& own = begun_.back();
    const Deadline deadline = Clock::now() + own.timeout;
    if (std::exchange(is_first_, false)) compare_tensors(own.tensors.all(), own.step, transport_, deadline);
    Status begun = reducer_.begin({own.tensors.all(), own.pair_means}, own.step, transport_, deadline);
    if (!begun) fail_all(std::move(begun.error()));
  }

  void finish() {
    Result<Report> report = reducer_.finish();
    if (!report) return fail_all(std::move(report.error()));
    Job job = take_oldest();
    keep_list(std::move(job.tensors));
    {
      // First: `done` may save.
      const MutexLock lock(mutex_);
      open_ = job.step.last ? std::nullopt : std::optional(job.step);
      assert(in_flight_ > 0);
      if (--in_flight_ == 0) idle_.notify_all();
    }
    job.done(report);
  }

  Job take_oldest() noexcept {
    assert(!begun_.empty());
    Job job = std::move(begun_.front());
    begun_.erase(begun_.begin());
    return job;
  }

  void fail_all(Error error) {
    {
      const MutexLock lock(mutex_);
      assert(!error_ && !begun_.empty() && in_flight_ >= begun_.size());
      transport_.names().to_numbers(error);
      error_ = std::move(error);
      open_.reset();
      failed_step_ = begun_.front().step.number;
      in_flight_ -= begun_.size();
      if (in_flight_ == 0) idle_.notify_all();
    }
    while (!begun_.empty()) take_oldest().done(failure());
  }

  bool transport_has_failed() const noexcept {
    const auto failed = [&]() -> Result<bool> { return transport_.failure({}).has_value(); };
    return or_no_memory("looking for a failure", failed).value_or(false);
  }

  // By one more bucket, which fails as any would. The abort changes nothing where there is a failure already.
  void end_lost_step() noexcept DELTAWIRE_REQUIRES(mutex_) {
    assert(in_flight_ == 0);
    if (!open_ || (!stopping_ && !transport_has_failed())) return;
    Step last = *std::exchange(open_, std::nullopt);
    last.last = true;
    (void)or_no_memory("taking a step back", [&]() -> Status {
      const int rank = transport_.rank();
      transport_.abort({.code = ErrorCode::kAborted,
                        .message = transport_.names().of(rank) + " closed its session within a step",
                        .suspect = rank,
                        .reporter = rank});
      if (reducer_.begin({}, last, transport_, Clock::now())) (void)reducer_.finish();
      return {};
    });
  }

  // The first error, without its text where there is no memory for that.
  Result<Report> failure() const noexcept {
    assert(error_.has_value());
    try {
      return tl::unexpected<Error>(*error_);
    } catch (const std::bad_alloc&) {
      return tl::unexpected<Error>(Error{error_->code, {}, error_->suspect, error_->last_committed_step});
    }
  }

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
