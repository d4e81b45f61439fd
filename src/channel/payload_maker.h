// Memory for messages of true size: bounds are far above it (3LC: 1.6 bits a value, whatever it sends).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/buffer_pool.h"
#include "channel/message_encoder.h"

namespace deltawire {

class PayloadMaker {
 public:
  explicit PayloadMaker(std::shared_ptr<MemoryMeter> meter)
      : pool_(std::move(meter), MemoryMeter::Use::kMessages) {}

  // Gives the message room for `bound` bytes.
  void open(Message& message, std::uint64_t bound);

  // Moves the parts' bytes together: where they are far below the bound, and the message stays until the step
  // ends, to memory of their own, and the room is kept for the next message. Says in `parts`, which are in
  // the room in this order, where they are now.
  void close(Message& message, std::span<SentPart> parts);

  // Keeps what the next step may need. REQUIRES: the messages gave theirs back, but those that live on.
  void end_step() noexcept;
  // Keeps nothing.
  void clear() noexcept;

 private:
  BufferPool pool_;
  BufferPool::Buffer room_;          // between two messages
  std::uint64_t largest_bound_ = 0;  // of this step
};

}  // namespace deltawire
