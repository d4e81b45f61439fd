#include "channel/payload_maker.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <utility>

namespace deltawire {
namespace {

// What the next step's message may be longer by.
constexpr std::uint64_t slack_of(std::uint64_t bytes) noexcept {
  return bytes / 16 + 512;
}

}  // namespace

void PayloadMaker::open(Message& message, std::uint64_t bound) {
  largest_bound_ = std::max(largest_bound_, bound);
  if (room_.bytes().size() < bound) {
    room_.reset();
    room_ = pool_.take(bound);
  }
  message.payload = std::move(room_);
  assert(message.payload.bytes().size() >= bound);
}

void PayloadMaker::close(Message& message, std::span<SentPart> parts) {
  std::uint64_t used = 0;
  for (const SentPart& part : parts) used += part.encoded.payload.size();
  assert(used <= message.payload.bytes().size());
  const bool far_below = message.is_needed && used <= message.payload.bytes().size() / 4 * 3;
  BufferPool::Buffer exact = far_below ? pool_.take(used, slack_of(used)) : BufferPool::Buffer();
  std::byte* at = far_below ? exact.bytes().data() : message.payload.bytes().data();
  for (SentPart& part : parts) {
    Bytes& bytes = part.encoded.payload;
    assert(bytes.empty() || far_below || bytes.data() >= at);
    if (!bytes.empty() && bytes.data() != at) std::memmove(at, bytes.data(), bytes.size());
    bytes = Bytes(at, bytes.size());
    at += bytes.size();
  }
  if (!far_below) return;
  room_ = std::move(message.payload);
  message.payload = std::move(exact);
}

void PayloadMaker::end_step() noexcept {
  if (room_.bytes().size() > largest_bound_) room_.reset();
  largest_bound_ = 0;
  pool_.end_step();
}

void PayloadMaker::clear() noexcept {
  room_.reset();
  largest_bound_ = 0;
  pool_.clear();
}

}  // namespace deltawire
