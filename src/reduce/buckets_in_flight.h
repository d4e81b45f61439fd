// The buckets of a reducer between begin and the end of their step, and the exchanges that are kept for later
// steps. Buckets are finished in the order in which they were begun; until then whichever can move does.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "deltawire/reducer.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"
#include "reduce/bucket_run.h"
#include "reduce/bucket_tensors.h"
#include "transport/process/machine.h"

namespace deltawire {

// The outcome of one move.
struct Progress {
  enum class Kind : std::uint8_t {
    kMoved,  // something was done; there may be more to do at once
    kWaits,  // nothing can be done before `handle`, or one of more_awaited(), has ended; kNone: older buckets
    kDone,   // the means are staged
  };
  Kind kind = Kind::kMoved;
  Handle handle = Handle::kNone;

  static Progress moved() { return {}; }
  static Progress waits(Handle handle) { return {Kind::kWaits, handle}; }
  static Progress done() { return {Kind::kDone, Handle::kNone}; }
};

// One bucket on its way through an exchange pattern: a state machine that advances by one message at a time
// and never waits, so that several buckets can be in flight and none holds up another. An implementation adds
// its plan of who sends which part to whom; one whose rounds are exchanges of their own leaves `messages_`
// empty. `is_oldest`: all older buckets are complete, so that this one waits for the memory of none; once
// true, it stays true.
class BucketExchange {
 public:
  virtual ~BucketExchange() = default;
  BucketExchange(const BucketExchange&) = delete;
  BucketExchange& operator=(const BucketExchange&) = delete;

  // Takes a bucket, perhaps not this object's first. Posts and encodes nothing. `round`: BucketRun::open.
  void open(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline,
            std::uint16_t round) {
    run_.open(step, transport, deadline, round);
    plan(tensors_.assign(bucket));
    run_.report().element_count = tensors_.elements();
  }

  // What may fail before anything is encoded; after it keep_unsent() keeps the bucket whole. start() does it,
  // unless it is done.
  virtual Status prepare() { return {}; }

  // Encodes and posts what needs nobody else.
  virtual Status start(bool is_oldest) = 0;

  // Does at most about one message's work, and does not wait.
  virtual Result<Progress> move(bool is_oldest) = 0;

  // After a move that waits: adds the handles that can let it continue besides the one that it returned.
  virtual void more_awaited(std::vector<Handle>& handles) const { (void)handles; }

  // Of a step that is reverted: passes what has not been encoded yet to the channel, as if it had been.
  virtual void keep_unsent() noexcept {}

  virtual void restart_clock() noexcept { run_.restart_clock(); }

  // Waits until no send reads the bucket's tensors or staged means any more. It is complete, so that others
  // have posted the receives. Ranks send what was given in their first messages.
  virtual void await_reads() noexcept { messages_.await_sent(kFirstStage); }

  // Gives memory that is no longer in use to the next bucket: after publish(), and again when the step ends.
  virtual void give_back() noexcept {
    tensors_.give_back();
    messages_.give_back();
  }

  // BucketMessages::drain.
  virtual void drain() noexcept { messages_.drain(); }

  BucketRun& run() noexcept { return run_; }
  BucketTensors& tensors() noexcept { return tensors_; }

 protected:
  explicit BucketExchange(BufferPool& pool, PartBackend* backend = nullptr)
      : messages_(pool, run_), tensors_(pool, backend) {}

  // Plans the bucket's way. `is_known`: its tensors are those of the one before, so that their parts are,
  // too.
  virtual void plan(bool is_known) = 0;

  BucketRun run_;
  BucketMessages messages_;
  BucketTensors tensors_;
};

class BucketsInFlight {
 public:
  // An exchange of an earlier step with its memory: the one of these tensors, if there is one. Null: none is
  // spare.
  std::unique_ptr<BucketExchange> take_spare(std::span<const Named> tensors) {
    if (spare_.empty()) return nullptr;
    const auto same =
        std::ranges::find_if(spare_, [&](const auto& spare) { return spare->tensors().same(tensors); });
    if (same != spare_.end()) std::swap(*same, spare_.back());
    std::unique_ptr<BucketExchange> exchange = std::move(spare_.back());
    spare_.pop_back();
    return exchange;
  }

  // Starts the exchange, which is open, as the youngest. It is in flight whatever start() returns.
  Status start(std::unique_ptr<BucketExchange> exchange) {
    assert(exchange != nullptr);
    buckets_.push_back({std::move(exchange)});
    BucketExchange& youngest = *buckets_.back().exchange;
    // A bucket waits for one message of each rank at most.
    awaited_.reserve(buckets_.size() * static_cast<std::size_t>(youngest.run().world()));
    return youngest.start(buckets_.size() == 1);
  }

  bool empty() const noexcept { return buckets_.empty(); }
  bool step_is_open() const noexcept { return !buckets_.empty() || !finished_.empty(); }
  BucketExchange& oldest() noexcept {
    assert(!empty());
    return *buckets_.front().exchange;
  }

  // Moves buckets until the oldest is complete: true; or, after one wait, until none can move: false.
  Result<bool> advance() {
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

  // Keeps the oldest until the step ends, since its sends may be under way. reserve_finish() allocates all
  // that finish_oldest() and end_step() need.
  void reserve_finish() {
    finished_.reserve(finished_.size() + 1);
    spare_.reserve(spare_.size() + finished_.size() + 1);
  }

  void finish_oldest() noexcept {
    assert(!empty());
    assert(finished_.size() < finished_.capacity());
    finished_.push_back(std::move(buckets_.front().exchange));
    buckets_.erase(buckets_.begin());
  }

  // The finished become spare, and give their memory back.
  void end_step() noexcept {
    assert(spare_.size() + finished_.size() <= spare_.capacity());
    for (auto& exchange : finished_) {
      exchange->give_back();
      spare_.push_back(std::move(exchange));
    }
    finished_.clear();
  }

  // BucketExchange::drain of the finished.
  void drain_finished() noexcept {
    for (const auto& exchange : finished_) exchange->drain();
  }

  // For a step that failed: drains all; then keeps what has not been sent, and drops the exchanges.
  void drain_all() noexcept {
    for (const InFlight& bucket : buckets_) bucket.exchange->drain();
    drain_finished();
  }

  void drop_all() noexcept {
    for (const InFlight& bucket : buckets_) bucket.exchange->keep_unsent();
    buckets_.clear();
    finished_.clear();
  }

  // For another rank or world size, to which spare exchanges don't fit.
  void drop_spares() noexcept { spare_.clear(); }

 private:
  struct InFlight {
    std::unique_ptr<BucketExchange> exchange;
    bool is_complete = false;
  };

  // Moves the oldest bucket that can be moved; false when all of them wait for awaited_.
  Result<bool> move_one() {
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
  Status wait_for_any() {
    BucketRun& run = oldest().run();
    const Stopwatch timer(run.report(), Stopwatch::Phase::kExchange);
    Status ended = run.transport().wait_any(awaited_, run.deadline());
    // A rank that came late was waited for: what the buckets may take counts from its arrival.
    if (ended && MachineClock::now() >= run.deadline()) {
      for (InFlight& bucket : buckets_) bucket.exchange->restart_clock();
    }
    return ended;
  }

  std::vector<InFlight> buckets_;                          // the oldest first
  std::vector<std::unique_ptr<BucketExchange>> finished_;  // of the open step
  std::vector<std::unique_ptr<BucketExchange>> spare_;
  std::vector<Handle> awaited_;  // what the buckets in flight wait for, the oldest first
};

}  // namespace deltawire
