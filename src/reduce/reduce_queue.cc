// The ordered communication thread. One thread, because two-stage exchanges that are chained by callbacks
// run in the order of completion, not of issue: wrong sums or hangs.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "base/no_memory.h"
#include "deltawire/reducer.h"
#include "reduce/own_tensors.h"

namespace deltawire {

class ReduceQueue::Impl {
 public:
  Impl(Reducer& reducer, Transport& transport, std::size_t max_in_flight)
      : reducer_(reducer), transport_(transport), max_in_flight_(max_in_flight) {
    begun_.reserve(max_in_flight_);  // so that the thread needs no memory of its own
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  struct Job {
    OwnTensors tensors;
    Step step;
    std::chrono::milliseconds timeout{};
    Done done;
  };

  // False after stop().
  bool submit(Job& job) {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    waiting_.push_back(std::move(job));
    changed_.notify_one();
    // The thread may be waiting for a bucket in flight: this one can begin meanwhile.
    transport_.wake();
    return true;
  }

  // A bucket is missing here: the others need not wait for it until their deadlines.
  void abort(const Error& error) noexcept { transport_.abort(error); }

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      changed_.notify_one();
    }
    if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
  }

 private:
  // The next job, if it may be begun now: its step is the open one, or nothing is in flight.
  std::optional<Job> take() {
    std::unique_lock lock(mutex_);
    if (begun_.empty()) changed_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return std::nullopt;
    const bool other_step = !begun_.empty() && begun_.back().step.number != waiting_.front().step.number;
    if (other_step || begun_.size() >= max_in_flight_) return std::nullopt;
    Job job = std::move(waiting_.front());
    waiting_.pop_front();
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
    Result<bool> complete = reducer_.advance();
    if (!complete) {
      fail_all(std::move(complete.error()));
    } else if (*complete) {
      finish();
    }
  }

  void begin(Job job) {
    if (error_) {
      job.done(failure());
      return;
    }
    begun_.push_back(std::move(job));
    Job& own = begun_.back();
    Status begun = reducer_.begin(own.tensors.all(), own.step, transport_, Clock::now() + own.timeout);
    if (!begun) fail_all(std::move(begun.error()));
  }

  void finish() {
    Result<Report> report = reducer_.finish();
    if (!report) {
      fail_all(std::move(report.error()));
      return;
    }
    take_oldest().done(report);
  }

  Job take_oldest() noexcept {
    Job job = std::move(begun_.front());
    begun_.erase(begun_.begin());
    return job;
  }

  void fail_all(Error error) {
    error_ = std::move(error);
    while (!begun_.empty()) take_oldest().done(failure());
  }

  // The first error, without its text where there is no memory for that.
  Result<Report> failure() const noexcept {
    try {
      return tl::unexpected<Error>(*error_);
    } catch (const std::bad_alloc&) {
      return tl::unexpected<Error>(Error{error_->code, {}, error_->suspect});
    }
  }

  Reducer& reducer_;
  Transport& transport_;
  const std::size_t max_in_flight_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;  // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  std::vector<Job> begun_;   // the thread's own
  std::optional<Error> error_;
  std::thread thread_;  // last: it uses all of the above
};

ReduceQueue::ReduceQueue(Reducer& reducer, Transport& transport, std::size_t max_in_flight)
    : impl_(std::make_unique<Impl>(reducer, transport, max_in_flight)) {}

ReduceQueue::~ReduceQueue() = default;

void ReduceQueue::submit(std::span<const Named> tensors, const Step& step, std::chrono::milliseconds timeout,
                         Done done) {
  Impl::Job job;
  job.done = std::move(done);
  const Result<bool> accepted = or_no_memory("submitting a bucket", [&]() -> Result<bool> {
    job.tensors.assign(tensors);
    job.step = step;
    job.timeout = timeout;
    return impl_->submit(job);
  });
  if (!accepted) {
    impl_->abort(accepted.error());
    job.done(forward_error(accepted));
  } else if (!*accepted) {
    job.done(fail(ErrorCode::kState, "the communication thread has been stopped"));
  }
}

void ReduceQueue::stop() {
  impl_->stop();
}

}  // namespace deltawire
