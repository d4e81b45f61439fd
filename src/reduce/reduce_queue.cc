#include "reduce/reduce_queue.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <utility>

#include "base/errors.h"

namespace deltawire {
namespace {

constexpr std::size_t kUsuallyWaiting = 32;
constexpr std::size_t kMostLists = 1024;  // for programs whose buckets are others in every step

}  // namespace

ReduceQueue::ReduceQueue(WakeableReducer& reducer, Transport& transport, std::size_t max_in_flight,
                         bool compares)
    : reducer_(reducer), transport_(transport), max_in_flight_(max_in_flight), is_first_(compares) {
  begun_.reserve(max_in_flight_);  // so that the thread needs no memory of its own
  waiting_.reserve(kUsuallyWaiting);
  thread_ = std::thread([this] { run(); });
  own_id_ = thread_.get_id();
}

void ReduceQueue::submit(const Bucket& bucket, const Step& step, std::chrono::milliseconds timeout,
                         Session::Done done) {
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

// The list that an earlier bucket of these tensors left, or another one. kInvalidArgument for tensors that
// can't be in one bucket: nothing has happened then.
Result<OwnTensors> ReduceQueue::take_list(std::span<const Named> tensors) {
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

void ReduceQueue::keep_list(OwnTensors list) noexcept {
  const MutexLock lock(mutex_);
  assert(lists_.size() < lists_.capacity());
  lists_.push_back(std::move(list));
}

// False after stop().
bool ReduceQueue::accept(Job& job) {
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

std::size_t ReduceQueue::wait_idle(Deadline deadline) {
  MutexLock lock(mutex_);
  idle_.wait_until(lock.standard(), deadline, [&]() DELTAWIRE_REQUIRES(mutex_) { return in_flight_ == 0; });
  return in_flight_;
}

void ReduceQueue::refuse_more() {
  const MutexLock lock(mutex_);
  stopping_ = true;
  changed_.notify_one();
}

void ReduceQueue::stop() {
  refuse_more();
  if (on_own_thread()) return;
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  end_lost_step();
}

bool ReduceQueue::transport_has_failed() const noexcept {
  const auto failed = [&]() -> Result<bool> { return transport_.failure({}).has_value(); };
  return or_no_memory("looking for a failure", failed).value_or(false);
}

// By one more bucket, which fails as any would. The abort changes nothing where there is a failure already.
void ReduceQueue::end_lost_step() noexcept {
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

// The next job, if it may be begun now: its step is the open one, or nothing is in flight.
std::optional<ReduceQueue::Job> ReduceQueue::take() {
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

void ReduceQueue::run() {
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
void ReduceQueue::work() {
  assert(!begun_.empty());
  Result<bool> complete = reducer_.advance();
  if (!complete) return fail_all(std::move(complete.error()));
  if (*complete) finish();
}

void ReduceQueue::begin(Job job) {
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

void ReduceQueue::finish() {
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

ReduceQueue::Job ReduceQueue::take_oldest() noexcept {
  assert(!begun_.empty());
  Job job = std::move(begun_.front());
  begun_.erase(begun_.begin());
  return job;
}

void ReduceQueue::fail_all(Error error) {
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

// The first error, without its text where there is no memory for that.
Result<Report> ReduceQueue::failure() const noexcept {
  assert(error_.has_value());
  try {
    return tl::unexpected<Error>(*error_);
  } catch (const std::bad_alloc&) {
    return tl::unexpected<Error>(Error{error_->code, {}, error_->suspect, error_->last_committed_step});
  }
}

}  // namespace deltawire
