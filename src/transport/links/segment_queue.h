// What one stream of several sends: segments of a whole (striped_link.h), kept until the peer's machine has
// acknowledged them, since they go through another stream if this one ends. A segment, little-endian:
//
//    0  u64  the position of its first byte in the whole
//    8  u32  how many bytes follow, 1 to kBytesMax
//
// Nothing is more than kWindow ahead of the oldest byte that may have to be sent again, which bounds what a
// receiver keeps until its turn comes.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "base/little_endian.h"
#include "deltawire/tensor.h"

namespace deltawire {

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

}  // namespace deltawire
