// Memory for messages of true size: bounds are far above it (3LC: 1.6 bits a value, whatever it sends).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/memory_meter.h"
#include "channel/message_encoder.h"

namespace deltawire {

class PayloadMaker {
 public:
  explicit PayloadMaker(std::shared_ptr<MemoryMeter> meter)
      : meter_(std::move(meter)), spare_held_(meter_, MemoryMeter::Use::kMessages) {}

  // Gives the message room for `bound` bytes.
  void open(Message& message, std::uint64_t bound);

  // Moves the parts' bytes together: where they are far below the bound to memory of their own, and the room
  // is kept for the next message. Says in `parts`, which are in the room in this order, where they are now.
  void close(Message& message, std::span<SentPart> parts) noexcept;

  // Frees the room if this step's messages did not need it.
  void end_step() noexcept;

 private:
  void keep(std::unique_ptr<std::byte[]> room, std::uint64_t capacity) noexcept;

  std::shared_ptr<MemoryMeter> meter_;
  std::unique_ptr<std::byte[]> spare_;
  std::uint64_t spare_capacity_ = 0;
  std::uint64_t largest_bound_ = 0;  // of this step
  MeteredBytes spare_held_;
};

}  // namespace deltawire
