// Both directions of the control stream to one peer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "transport/link.h"
#include "transport/mesh/control_message.h"

namespace deltawire {

class ControlStream {
 public:
  enum class End : std::uint8_t { kOpen, kClosed, kDamaged };

  ControlStream(std::unique_ptr<Link> link, int world_size) noexcept
      : link_(std::move(link)), parser_(world_size) {}

  Link& link() noexcept { return *link_; }
  End end() const noexcept { return end_; }

  // Queues a message and sends what goes at once. News of waits, and answers to it, are dropped while a peer
  // reads nothing, so that the queue stays small.
  void send(const ControlMessage& message);

  // Sends what the socket takes.
  void flush() noexcept;
  bool has_unsent() const noexcept { return !unsent_.empty() && end_ == End::kOpen; }

  // Reads what has arrived, up to a limit, and appends it to `messages`; end() tells whether there can be
  // more.
  void receive(std::vector<ControlMessage>& messages);
  // When reading may go on: kNever unless the last receive() met the limit. Control streams carry little, so
  // whoever floods one must not keep this rank from its own work.
  Deadline read_at() const noexcept { return read_at_; }

 private:
  std::unique_ptr<Link> link_;
  ControlParser parser_;
  std::vector<std::byte> unsent_;
  Deadline read_at_ = kNever;
  End end_ = End::kOpen;
  bool send_broken_ = false;
};

}  // namespace deltawire
