#include "channel/payload_maker.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

namespace deltawire {

void PayloadMaker::keep(std::unique_ptr<std::byte[]> room, std::uint64_t capacity) noexcept {
  spare_ = std::move(room);
  spare_capacity_ = capacity;
  spare_held_.set(capacity);
}

void PayloadMaker::open(Message& message, std::uint64_t bound) {
  message.held = MeteredBytes(meter_, MemoryMeter::Use::kMessages);
  largest_bound_ = std::max(largest_bound_, bound);
  if (spare_capacity_ < bound) {
    keep(nullptr, 0);
    message.payload = std::make_unique_for_overwrite<std::byte[]>(bound);
    message.payload_capacity = bound;
  } else {
    message.payload = std::move(spare_);
    message.payload_capacity = spare_capacity_;
    keep(nullptr, 0);
  }
  message.count();
}

void PayloadMaker::close(Message& message, std::span<SentPart> parts) noexcept {
  std::uint64_t used = 0;
  for (const SentPart& part : parts) used += part.encoded.payload.size();
  std::unique_ptr<std::byte[]> exact;  // null: the room serves as well
  if (used <= message.payload_capacity / 4 * 3) exact.reset(new (std::nothrow) std::byte[used]);
  std::byte* at = exact != nullptr ? exact.get() : message.payload.get();
  for (SentPart& part : parts) {
    Bytes& bytes = part.encoded.payload;
    if (!bytes.empty() && bytes.data() != at) std::memmove(at, bytes.data(), bytes.size());
    bytes = Bytes(at, bytes.size());
    at += bytes.size();
  }
  if (exact == nullptr) return;
  std::swap(message.payload, exact);
  const std::uint64_t capacity = std::exchange(message.payload_capacity, used);
  message.count();
  keep(std::move(exact), capacity);
}

void PayloadMaker::end_step() noexcept {
  if (spare_capacity_ > largest_bound_) keep(nullptr, 0);
  largest_bound_ = 0;
}

}  // namespace deltawire
