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
      : link_(std::move(link)), parser_(world_size) {
    if (link_->holds_received()) read_at_ = Deadline{};
  }

  Link& link() noexcept { return *link_; }
  Traffic traffic() const noexcept { return traffic_; }
  End end() const noexcept { return end_; }
  // The errno that ended it; 0 if it was closed.
  int error() const noexcept { return error_; }

  // Queues a message and sends as much as the socket takes at once. Messages about waits, and their answers,
  // are dropped while a peer reads nothing, so that the queue stays small. If an allocation fails, nothing is
  // queued.
  void send(const ControlMessage& message);
  // Reserves room for that many bytes, so that sending them does not allocate.
  void reserve(std::size_t bytes) { unsent_.reserve(unsent_.size() + bytes); }
  // Sends encoded messages, whose bytes are reserve()d.
  void send_encoded(Bytes messages) noexcept;

  // Sends as much as the socket takes.
  void flush() noexcept;
  bool has_unsent() const noexcept { return !unsent_.empty() && may_send(); }
  // What arrives may be damaged while this direction is sound: then the peer is told why this rank leaves.
  bool may_send() const noexcept { return end_ != End::kClosed && !send_broken_; }

  // Begins to watch whether the peer's machine acknowledges all bytes sent so far, unless an earlier watch()
  // is still unacknowledged.
  void watch(Deadline now) noexcept;
  // For how long it has acknowledged none of the watched bytes; 0 once it has acknowledged all of them, or if
  // that is unknown.
  Clock::duration unacknowledged_for(Deadline now) noexcept;

  // Lets front() read what has arrived, up to a limit.
  void begin_reading() noexcept;
  // The next message; nullptr if there is none now, and end() tells whether there can be more. It stays until
  // pop(), so that no message is lost if an allocation fails, neither here nor while it is handled.
  const ControlMessage* front();
  void pop() noexcept { front_.reset(); }
  // When to read again without waiting for the socket: kNever unless the limit was reached, or postpone()
  // called. Control streams carry little; the limit keeps a peer that floods one from stalling this rank.
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
  int error_ = 0;
  bool send_broken_ = false;
  std::uint64_t watched_bytes_ = 0;  // how many of all sent bytes are to be acknowledged
  Deadline watched_since_ = kNever;
};

}  // namespace deltawire
