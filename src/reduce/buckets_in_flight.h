// The buckets of a reducer between begin and the end of their step, and the exchanges that are kept for later
// steps. Buckets are finished in the order in which they were begun; until then whichever can move does.
#pragma once

#include <cassert>
#include <memory>
#include <span>
#include <vector>

#include "deltawire/tensor.h"
#include "deltawire/transport.h"
#include "reduce/bucket_exchange.h"

namespace deltawire {

class BucketsInFlight {
 public:
  // An exchange of an earlier step with its memory: the one of these tensors, if there is one. Null: none is
  // spare.
  std::unique_ptr<BucketExchange> take_spare(std::span<const Named> tensors);

  // Starts the exchange, which is open, as the youngest. It is in flight whatever start() returns.
  Status start(std::unique_ptr<BucketExchange> exchange);

  bool empty() const noexcept { return buckets_.empty(); }
  bool step_is_open() const noexcept { return !buckets_.empty() || !finished_.empty(); }
  BucketExchange& oldest() noexcept {
    assert(!empty());
    return *buckets_.front().exchange;
  }

  // Moves buckets until the oldest is complete: true; or, after one wait, until none can move: false.
  Result<bool> advance();

  // Keeps the oldest until the step ends, since its sends may be under way. reserve_finish() allocates all
  // that finish_oldest() and end_step() need.
  void reserve_finish();
  void finish_oldest() noexcept;

  // The finished become spare, and give their memory back.
  void end_step() noexcept;

  // BucketExchange::drain of the finished.
  void drain_finished() noexcept;

  // For a step that failed: drains all; then keeps what has not been sent, and drops the exchanges.
  void drain_all() noexcept;
  void drop_all() noexcept;

  // For another rank or world size, to which spare exchanges don't fit.
  void drop_spares() noexcept { spare_.clear(); }

 private:
  struct InFlight {
    std::unique_ptr<BucketExchange> exchange;
    bool is_complete = false;
  };

  Result<bool> move_one();
  Status wait_for_any();

  std::vector<InFlight> buckets_;                          // the oldest first
  std::vector<std::unique_ptr<BucketExchange>> finished_;  // of the open step
  std::vector<std::unique_ptr<BucketExchange>> spare_;
  std::vector<Handle> awaited_;  // what the buckets in flight wait for, the oldest first
};

}  // namespace deltawire
