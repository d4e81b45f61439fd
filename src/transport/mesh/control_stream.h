// Both directions of the control stream to one peer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/links/link.h"
#include "transport/mesh/control_message.h"

namespace deltawire {

class ControlStream {
 public:
  enum class End : std::uint8_t { kOpen, kClosed, kDamaged };

  ControlStream(std::unique_ptr<Link> link, int world_size) noexcept
      : link_(std::move(link)), parser_(world_size) {}

  Link& link() noexcept { return *link_; }
  Traffic traffic() const noexcept { return traffic_; }
  End end() const noexcept { return end_; }

  // Queues a message and sends what goes at once. News of waits, and answers to it, are dropped while a peer
  // reads nothing, so that the queue stays small. Where memory fails, nothing is queued.
  void send(const ControlMessage& message);
  // Room for so many bytes: sending them then needs no memory.
  void reserve(std::size_t bytes) { unsent_.reserve(unsent_.size() + bytes); }
  // Likewise for messages that are encoded. REQUIRES: reserve()d.
  void send_encoded(Bytes messages) noexcept;

  // Sends what the socket takes.
  void flush() noexcept;
  bool has_unsent() const noexcept { return !unsent_.empty() && end_ == End::kOpen; }

  // Watches whether the peer's machine acknowledges all that was said until now, unless it still owes an
  // earlier watch() that.
  void watch(Deadline now) noexcept;
  // For how long it has acknowledged nothing of what is watched; 0 once it has acknowledged it all, or where
  // nobody can tell.
  Clock::duration unacknowledged_for(Deadline now) noexcept;

  // From here on front() reads what has arrived, up to a limit.
  void begin_reading() noexcept;
  // The next message; nullptr when there is none now, and end() tells whether there can be more. It stays
  // until pop(): no message is lost where memory fails, neither here nor where it is heeded.
  const ControlMessage* front();
  void pop() noexcept { front_.reset(); }
  // When reading is to go on without news of the socket: kNever unless the limit was met, or postpone()
  // called. Control streams carry little, so whoever floods one must not keep this rank from its own work.
  Deadline read_at() const noexcept { return read_at_; }
  void postpone() noexcept;

 private:
  bool read();

  std::unique_ptr<Link> link_;
  Traffic traffic_;
  ControlParser parser_;
  std::vector<std::byte> unsent_;
  std::array<std::byte, 2048> buffer_;
  Bytes unparsed_;  // of it
  std::optional<ControlMessage> front_;
  std::size_t may_read_ = 0;  // bytes
  Deadline read_at_ = kNever;
  End end_ = End::kOpen;
  bool send_broken_ = false;
  std::uint64_t watched_bytes_ = 0;  // of all that was sent: to be acknowledged
  Deadline watched_since_ = kNever;
};

}  // namespace deltawire
