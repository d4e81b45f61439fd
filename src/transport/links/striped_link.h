// One byte stream over several to the same peer: where a long line loses packets, each TCP stream gets a
// small share of its rate, whatever the others do (Mathis et al., "The macroscopic behavior of the TCP
// congestion avoidance algorithm", 1997). The bytes go in segments (segment_queue.h), each through a stream
// with room.
//
// A stream that ends is not the peer's end as long as another lives: what the peer's machine has not
// acknowledged goes again through the others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "deltawire/result.h"
#include "transport/links/link.h"
#include "transport/links/segment_order.h"
#include "transport/links/segment_queue.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

class StripedLink final : public Link {
 public:
  // REQUIRES: at least one stream, none null. Errors: kSystem.
  static Result<std::unique_ptr<Link>> make(std::vector<std::unique_ptr<Link>> streams);

  int fd() const noexcept override { return readable_.get(); }
  int send_fd() const noexcept override { return writable_.get(); }
  short send_events() const noexcept override;
  // Returns bytes as sent when they, and all before them, are in the kernel: until then the caller hands in
  // the same ones again.
  IoResult send(std::span<const iovec> pieces) noexcept override;
  IoResult recv(MutBytes into) noexcept override;
  Deadline pump() noexcept override;
  bool holds_received() const noexcept override;
  bool delivered() noexcept override;
  std::size_t unacknowledged() noexcept override;
  // The longest round trip, the bytes of all streams, and their number.
  LineState state() const noexcept override;

 private:
  struct Stream {
    std::unique_ptr<Link> link;  // null once it has ended
    SegmentQueue queue{};
    bool may_send = true;
    bool awaits_room = false;  // writable_ has it
  };

  StripedLink(std::vector<Stream> streams, GuardedFd readable, GuardedFd writable)
      : streams_(std::move(streams)),
        order_(streams_.size()),
        readable_(std::move(readable)),
        writable_(std::move(writable)) {}

  void write_all();
  void write(Stream& stream);
  void adopt_orphans();
  void take(std::span<const iovec> pieces);
  Stream* next_with_room() noexcept;
  void forget_acknowledged() noexcept;
  bool is_window_full() const noexcept { return taken_ - oldest_ >= Stripe::kWindow; }
  std::uint64_t first_unwritten() const noexcept;
  void await_room(bool for_more) noexcept;
  std::size_t read_ready(MutBytes into, bool& found);
  std::size_t read(std::size_t number, MutBytes into, bool& found);
  void end_sending(Stream& stream, const IoResult& how);
  void end(std::size_t number, const IoResult& how);
  bool has_stream() const noexcept;
  bool may_send() const noexcept { return std::ranges::any_of(streams_, &Stream::may_send); }

  std::vector<Stream> streams_;
  SegmentOrder order_;
  GuardedFd readable_;  // epoll: the streams
  GuardedFd writable_;  // epoll: streams that wait for room
  std::size_t turn_ = 0;
  std::uint64_t taken_ = 0;     // bytes in segments
  std::uint64_t told_ = 0;      // of them, those that send() has returned
  std::uint64_t oldest_ = 0;    // position: all before was acknowledged
  std::deque<Stripe> orphans_;  // of streams that have ended
  IoResult last_end_ = IoResult::closed();
  bool is_broken_ = false;  // what came is no segment
};

}  // namespace deltawire
