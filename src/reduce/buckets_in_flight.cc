#include "reduce/buckets_in_flight.h"

#include <algorithm>
#include <utility>

#include "base/errors.h"
#include "transport/process/machine.h"

namespace deltawire {

std::unique_ptr<BucketExchange> BucketsInFlight::take_spare(std::span<const Named> tensors) {
  if (spare_.empty()) return nullptr;
  const auto same =
      std::ranges::find_if(spare_, [&](const auto& spare) { return spare->tensors().same(tensors); });
  if (same != spare_.end()) std::swap(*same, spare_.back());
  std::unique_ptr<BucketExchange> exchange = std::move(spare_.back());
  spare_.pop_back();
  return exchange;
}

Status BucketsInFlight::start(std::unique_ptr<BucketExchange> exchange) {
  assert(exchange != nullptr);
  buckets_.push_back({std::move(exchange)});
  BucketExchange& youngest = *buckets_.back().exchange;
  // A bucket waits for one message of each rank at most.
  awaited_.reserve(buckets_.size() * static_cast<std::size_t>(youngest.run().world()));
  return youngest.start(buckets_.size() == 1);
}

Result<bool> BucketsInFlight::advance() {
  assert(!empty());
  bool waited = false;
  while (!buckets_.front().is_complete) {
    ASSIGN_OR_RETURN(const bool moved, move_one());
    if (moved) continue;
    if (waited) return false;
    RETURN_IF_ERROR(wait_for_any());
    waited = true;
  }
  return true;
}

// Moves the oldest bucket that can be moved; false when all of them wait for awaited_.
Result<bool> BucketsInFlight::move_one() {
  awaited_.clear();
  bool is_oldest = true;
  for (InFlight& bucket : buckets_) {
    if (bucket.is_complete) continue;
    ASSIGN_OR_RETURN(const Progress progress, bucket.exchange->move(std::exchange(is_oldest, false)));
    if (progress.kind == Progress::Kind::kDone) bucket.is_complete = true;
    if (progress.kind != Progress::Kind::kWaits) return true;
    if (progress.handle != Handle::kNone) awaited_.push_back(progress.handle);
    bucket.exchange->more_awaited(awaited_);
  }
  return false;
}

// The time counts for the oldest bucket; it ends before the bucket can.
Status BucketsInFlight::wait_for_any() {
  BucketRun& run = oldest().run();
  const Stopwatch timer(run.report(), Stopwatch::Phase::kExchange);
  Status ended = run.transport().wait_any(awaited_, run.deadline());
  // A rank that came late was waited for: what the buckets may take counts from its arrival.
  if (ended && MachineClock::now() >= run.deadline()) {
    for (InFlight& bucket : buckets_) bucket.exchange->restart_clock();
  }
  return ended;
}

void BucketsInFlight::reserve_finish() {
  finished_.reserve(finished_.size() + 1);
  spare_.reserve(spare_.size() + finished_.size() + 1);
}

void BucketsInFlight::finish_oldest() noexcept {
  assert(!empty());
  assert(finished_.size() < finished_.capacity());
  finished_.push_back(std::move(buckets_.front().exchange));
  buckets_.erase(buckets_.begin());
}

void BucketsInFlight::end_step() noexcept {
  assert(spare_.size() + finished_.size() <= spare_.capacity());
  for (auto& exchange : finished_) {
    exchange->give_back();
    spare_.push_back(std::move(exchange));
  }
  finished_.clear();
}

void BucketsInFlight::drain_finished() noexcept {
  for (const auto& exchange : finished_) exchange->drain();
}

void BucketsInFlight::drain_all() noexcept {
  for (const InFlight& bucket : buckets_) bucket.exchange->drain();
  drain_finished();
}

void BucketsInFlight::drop_all() noexcept {
  for (const InFlight& bucket : buckets_) bucket.exchange->keep_unsent();
  buckets_.clear();
  finished_.clear();
}

}  // namespace deltawire
