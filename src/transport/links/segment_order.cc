#include "transport/links/segment_order.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "base/little_endian.h"

namespace deltawire {

MutBytes SegmentOrder::room(std::size_t stream, MutBytes into) {
  assert(!into.empty());
  Arrival& arrival = streams_[stream];
  arrival.is_direct = false;
  if (arrival.left == 0) return MutBytes(arrival.header).subspan(arrival.header_bytes);
  if (arrival.next < expected_) {
    arrival.early.clear();  // it came through another stream meanwhile
    repeated_.resize(std::min<std::uint64_t>(arrival.left, expected_ - arrival.next));
    return repeated_;
  }
  if (arrival.next == expected_ && arrival.early.empty()) {
    arrival.is_direct = true;
    return into.first(std::min(into.size(), arrival.left));
  }
  const std::size_t before = arrival.early.size();
  arrival.early.resize(before + arrival.left);
  return MutBytes(arrival.early).subspan(before);
}

bool SegmentOrder::received(std::size_t stream, std::size_t bytes) {
  Arrival& arrival = streams_[stream];
  delivered_ = 0;
  if (arrival.left == 0) {
    arrival.header_bytes += bytes;
    return arrival.header_bytes < arrival.header.size() || read_header(arrival);
  }
  // room() was for all that is left.
  if (!arrival.early.empty()) arrival.early.resize(arrival.early.size() - (arrival.left - bytes));
  arrival.next += bytes;
  arrival.left -= bytes;
  if (arrival.is_direct) {
    delivered_ = bytes;
    expected_ += bytes;
  }
  if (arrival.left == 0) keep(arrival);
  return true;
}

bool SegmentOrder::read_header(Arrival& arrival) const {
  arrival.header_bytes = 0;
  arrival.next = load_le<std::uint64_t>(arrival.header.data());
  arrival.left = load_le<std::uint32_t>(arrival.header.data() + 8);
  const bool is_near = arrival.next <= expected_ || arrival.next - expected_ <= kAheadMax;
  if (arrival.left >= 1 && arrival.left <= Stripe::kBytesMax && is_near) return true;
  arrival.left = 0;
  return false;
}

// Of two that begin at the same place the longer one.
void SegmentOrder::keep(Arrival& arrival) {
  if (arrival.early.empty()) return;
  std::vector<std::byte>& kept = kept_[arrival.next - arrival.early.size()];
  if (kept.size() < arrival.early.size()) kept.swap(arrival.early);
  arrival.early.clear();
}

std::size_t SegmentOrder::take_kept(MutBytes into) noexcept {
  std::size_t taken = 0;
  while (has_kept() && taken < into.size()) {
    const auto first = kept_.begin();
    const std::uint64_t end = first->first + first->second.size();
    if (end > expected_) {
      const std::size_t count = std::min<std::uint64_t>(end - expected_, into.size() - taken);
      std::memcpy(into.data() + taken, first->second.data() + (expected_ - first->first), count);
      taken += count;
      expected_ += count;
    }
    if (end <= expected_) kept_.erase(first);
  }
  return taken;
}

}  // namespace deltawire
