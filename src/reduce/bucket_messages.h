// The messages of one bucket on their way: receives in the memory of a pool, and sends whose memory is
// released when the last copy of a message is sent.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "base/buffer_pool.h"
#include "deltawire/channel.h"
#include "deltawire/transport.h"
#include "reduce/bucket_run.h"

namespace deltawire {

// A receive, posted or not.
struct Incoming {
  BufferPool::Buffer buffer;
  Handle handle = Handle::kNone;
};

class BucketMessages {
 public:
  // Both outlive it.
  BucketMessages(BufferPool& pool, BucketRun& run) : pool_(&pool), run_(&run) {}

  // For a new bucket, with room for this many sends: so the memory doesn't depend on how fast others are.
  void open(std::size_t sends);

  // Receive number `index` of this bucket. Its memory is taken when it is posted.
  Incoming& incoming(std::size_t index);
  Handle incoming_handle(std::size_t index) const noexcept {
    assert(index < receives_.size());
    return receives_[index].handle;
  }
  void post(Incoming& receive, int peer, std::uint16_t stage, std::uint64_t capacity_bytes);
  bool arrived(const Incoming& receive) const { return run_->transport().done(receive.handle); }
  // The message that has arrived, in the receive's buffer.
  Result<Bytes> take(Incoming& receive);

  // Counts the bytes. The pieces must stay until the step ends or, if the channel that encoded them is given,
  // until release_sent() finds that they are sent.
  Handle send(int peer, std::uint16_t stage, std::span<const Bytes> pieces, Channel* from = nullptr);
  void send_to_all(std::uint16_t stage, std::span<const Bytes> pieces, Channel* from = nullptr);
  void release_sent() noexcept;

  // Waits until what was sent of a stage, from memory that is not the channel's, may change.
  void await_sent(std::uint16_t stage) noexcept;

  // Gives the receives' memory to the next bucket.
  void give_back() noexcept;

  // Waits for everything posted, so that the memory is free. REQUIRES: the transport has failed, or
  // everything was received and only sends can be left.
  void drain() noexcept;

 private:
  struct Sent {
    Handle handle = Handle::kNone;
    Channel* from = nullptr;  // null: the message stays
    std::uint16_t stage = 0;
    std::span<const Bytes> message;
  };
  void await_end(Handle& handle) noexcept;

  BufferPool* pool_;
  BucketRun* run_;
  std::deque<Incoming> receives_;  // a deque, so that references stay valid
  std::vector<Sent> sends_;        // the copies of a message one after another
};

}  // namespace deltawire
