// One byte stream over several to the same peer: where a long line loses packets, each TCP stream gets a
// small share of its rate, whatever the others do (Mathis et al., "The macroscopic behavior of the TCP
// congestion avoidance algorithm", 1997). The bytes go in segments (Stripe), each through a stream
// with room.
//
// A stream that ends is not the peer's end as long as another lives: what the peer's machine has not
// acknowledged goes again through the others.
#pragma once

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/little_endian.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "transport/links/link.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

// What one stream of several sends: segments of a whole, kept until the peer's machine has
// acknowledged them, since they go through another stream if this one ends. A segment, little-endian:
//
//    0  u64  the position of its first byte in the whole
//    8  u32  how many bytes follow, 1 to kBytesMax
//
// Nothing is more than kWindow ahead of the oldest byte that may have to be sent again, which bounds what a
// receiver keeps until its turn comes.
struct Stripe {
  static constexpr std::size_t kHeaderBytes = 12;
  static constexpr std::size_t kBytesMax = 64 << 10;
  static constexpr std::uint64_t kWindow = 32 << 20;

  // Without a payload, which the caller appends. REQUIRES: 1 to kBytesMax bytes follow.
  Stripe(std::uint64_t position, std::size_t payload) : at(position) {
    assert(payload > 0 && payload <= kBytesMax);
    bytes.reserve(kHeaderBytes + payload);
    bytes.resize(kHeaderBytes);
    store_le(bytes.data(), position);
    store_le(bytes.data() + 8, static_cast<std::uint32_t>(payload));
  }

  std::uint64_t at;
  std::vector<std::byte> bytes;  // with the header
};

class SegmentQueue {
 public:
  void add(Stripe segment) { segments_.push_back(std::move(segment)); }

  // The rest of the segment that is to be written; empty if all are.
  Bytes unwritten() const noexcept {
    return is_written() ? Bytes() : Bytes(segments_[written_].bytes).subspan(begun_);
  }
  void wrote(std::size_t bytes) noexcept {
    assert(bytes <= unwritten().size());
    begun_ += bytes;
    sent_ += bytes;
    if (begun_ == segments_[written_].bytes.size()) {
      begun_ = 0;
      ++written_;
    }
  }
  bool is_written() const noexcept { return written_ == segments_.size(); }
  // The position of the first byte that is to be written, at most `end`.
  std::uint64_t first_unwritten(std::uint64_t end) const noexcept {
    for (std::size_t i = written_; i < segments_.size(); ++i) end = std::min(end, segments_[i].at);
    return end;
  }

  // All but the last `unacknowledged` bytes that were written have arrived: what they held is forgotten.
  void acknowledge(std::size_t unacknowledged) noexcept {
    const std::uint64_t arrived = sent_ - (unacknowledged < sent_ ? unacknowledged : sent_);
    while (written_ > 0 && forgotten_ + segments_.front().bytes.size() <= arrived) {
      forgotten_ += segments_.front().bytes.size();
      segments_.pop_front();
      --written_;
    }
  }
  // The position of the first byte that may have to go again, at most `end`.
  std::uint64_t oldest(std::uint64_t end) const noexcept {
    for (const Stripe& segment : segments_) end = std::min(end, segment.at);
    return end;
  }

  // Hands on whatever may not have arrived.
  void give_all(std::deque<Stripe>& to) {
    for (Stripe& segment : segments_) to.push_back(std::move(segment));
    segments_.clear();
    written_ = begun_ = 0;
  }

 private:
  std::deque<Stripe> segments_;  // written ones, and after them those to be written
  std::size_t written_ = 0;
  std::size_t begun_ = 0;        // bytes of the next one
  std::uint64_t sent_ = 0;       // bytes in all
  std::uint64_t forgotten_ = 0;  // of them, in segments that have arrived
};

// The other end of several streams that carry one: puts their segments in order. It knows
// nothing of links: bytes go in through room() and received().
//
// Segments may come twice, where a stream ended. What no sender does (no bytes, too many, a place too far
// ahead) is refused.
class SegmentOrder {
 public:
  // How far ahead of its turn a segment may be: the sender's window, and what systems receive before anybody
  // reads it.
  static constexpr std::uint64_t kAheadMax = 8 * Stripe::kWindow;

  explicit SegmentOrder(std::size_t streams) : streams_(streams) {}

  // Memory for the next bytes of a stream: `into`, if their turn has come. REQUIRES: `into` isn't empty.
  MutBytes room(std::size_t stream, MutBytes into);
  // That many bytes were written there. False: they are no segment, and the whole is broken.
  bool received(std::size_t stream, std::size_t bytes);
  // How many of them went to `into`, where they can stay.
  std::size_t delivered() const noexcept { return delivered_; }

  // The stream has ended; what it had begun comes again through another.
  void drop(std::size_t stream) { streams_[stream] = {}; }

  // Bytes that came before their turn, and have it now; returns how many.
  std::size_t take_kept(MutBytes into) noexcept;
  bool has_kept() const noexcept { return !kept_.empty() && kept_.begin()->first <= expected_; }

 private:
  // A segment as it arrives.
  struct Arrival {
    std::array<std::byte, Stripe::kHeaderBytes> header{};
    std::size_t header_bytes = 0;
    std::uint64_t next = 0;  // the position of its next byte
    std::size_t left = 0;
    std::vector<std::byte> early;  // what came before its turn, up to `next`
    bool is_direct = false;        // the room that was given last is the caller's
  };

  bool read_header(Arrival& arrival) const;
  void keep(Arrival& arrival);

  std::vector<Arrival> streams_;
  std::uint64_t expected_ = 0;  // the position that is delivered next
  std::size_t delivered_ = 0;
  std::map<std::uint64_t, std::vector<std::byte>> kept_;  // by position
  std::vector<std::byte> repeated_;                       // where bytes go that have come before
};

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
  bool holds_received() const noexcept override {
    return order_.has_kept() || std::ranges::any_of(streams_, [](const Stream& stream) {
             return stream.link && stream.link->holds_received();
           });
  }
  bool delivered() noexcept override;
  std::size_t unacknowledged() noexcept override {
    forget_acknowledged();
    return taken_ - oldest_;
  }
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
  bool has_stream() const noexcept {
    return std::ranges::any_of(streams_, [](const Stream& stream) { return stream.link != nullptr; });
  }
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
