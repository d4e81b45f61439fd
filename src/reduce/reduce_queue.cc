// The ordered communication thread. One thread, because two-stage exchanges that are chained by callbacks
// run in the order of completion, not of issue: wrong sums or hangs.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "deltawire/reducer.h"

namespace deltawire {

class ReduceQueue::Impl {
 public:
  Impl(Reducer& reducer, Transport& transport, std::size_t max_in_flight)
      : reducer_(reducer), transport_(transport), max_in_flight_(max_in_flight), thread_([this] { run(); }) {}

  ~Impl() { stop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  struct Job {
    std::vector<std::string> names;
    std::vector<Named> tensors;
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
    const Result<bool> complete = reducer_.advance();
    if (!complete) {
      fail_all(complete.error());
    } else if (*complete) {
      finish();
    }
  }

  void begin(Job job) {
    if (error_) {
      job.done(tl::unexpected<Error>(*error_));
      return;
    }
    begun_.push_back(std::move(job));
    Job& own = begun_.back();
    const Status begun = reducer_.begin(own.tensors, own.step, transport_, Clock::now() + own.timeout);
    if (!begun) fail_all(begun.error());
  }

  void finish() {
    const Result<Report> report = reducer_.finish();
    if (!report) {
      fail_all(report.error());
      return;
    }
    const Job job = std::move(begun_.front());
    begun_.pop_front();
    job.done(report);
  }

  void fail_all(const Error& error) {
    error_ = error;
    while (!begun_.empty()) {
      const Job job = std::move(begun_.front());
      begun_.pop_front();
      job.done(tl::unexpected<Error>(error));
    }
  }

  Reducer& reducer_;
  Transport& transport_;
  const std::size_t max_in_flight_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;  // guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  std::deque<Job> begun_;    // the thread's own
  std::optional<Error> error_;
  std::thread thread_;  // last: it uses all of the above
};

ReduceQueue::ReduceQueue(Reducer& reducer, Transport& transport, std::size_t max_in_flight)
    : impl_(std::make_unique<Impl>(reducer, transport, max_in_flight)) {}

ReduceQueue::~ReduceQueue() = default;

void ReduceQueue::submit(std::span<const Named> tensors, const Step& step, std::chrono::milliseconds timeout,
                         Done done) {
  Impl::Job job;
  job.tensors.assign(tensors.begin(), tensors.end());
  for (const Named& tensor : tensors) job.names.emplace_back(tensor.name);
  for (std::size_t i = 0; i < job.names.size(); ++i) job.tensors[i].name = job.names[i];
  job.step = step;
  job.timeout = timeout;
  job.done = std::move(done);
  if (!impl_->submit(job)) job.done(fail(ErrorCode::kState, "the communication thread has been stopped"));
}

void ReduceQueue::stop() {
  impl_->stop();
}

}  // namespace deltawire
