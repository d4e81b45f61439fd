// The other end of several streams that carry one (segment_queue.h): puts their segments in order. It knows
// nothing of links: bytes go in through room() and received().
//
// Segments may come twice, where a stream ended. What no sender does (no bytes, too many, a place too far
// ahead) is refused.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "deltawire/tensor.h"
#include "transport/links/segment_queue.h"

namespace deltawire {

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

}  // namespace deltawire
