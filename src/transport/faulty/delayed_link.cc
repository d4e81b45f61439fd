#include "transport/faulty/delayed_link.h"

#include <algorithm>
#include <cerrno>
#include <new>

namespace deltawire {
namespace {

constexpr std::size_t kHeldMax = std::size_t{8} << 20;
constexpr std::chrono::milliseconds kRetryFullSocket{1};

}  // namespace

IoResult DelayedLink::send(std::span<const iovec> pieces) noexcept {
  if (failure_.kind != IoResult::Kind::kOk) return failure_;
  const Deadline now = Clock::now();
  const std::size_t total = total_bytes(pieces);
  if (held_ > 0 && total > kHeldMax - held_) {
    return IoResult::would_block(std::max(parcels_.front().due, now + kRetryFullSocket));
  }
  try {
    Parcel parcel{{}, now + delay_};
    parcel.bytes.reserve(total);
    for (const iovec& piece : pieces) {
      const auto* first = static_cast<const std::byte*>(piece.iov_base);
      parcel.bytes.insert(parcel.bytes.end(), first, first + piece.iov_len);
    }
    parcels_.push_back(std::move(parcel));
  } catch (const std::bad_alloc&) {
    return {IoResult::Kind::kError, 0, ENOMEM, kNever};
  }
  held_ += total;
  return IoResult::moved(total);
}

Deadline DelayedLink::pump() noexcept {
  const Deadline now = Clock::now();
  while (!parcels_.empty() && failure_.kind == IoResult::Kind::kOk) {
    Parcel& parcel = parcels_.front();
    if (parcel.due > now) return parcel.due;
    const iovec piece{parcel.bytes.data() + front_sent_, parcel.bytes.size() - front_sent_};
    const IoResult result = inner().send({&piece, 1});
    if (result.kind == IoResult::Kind::kWouldBlock) {
      return result.retry_at == kNever ? now + kRetryFullSocket : result.retry_at;
    }
    if (result.kind != IoResult::Kind::kOk) {
      failure_ = result;
      break;
    }
    front_sent_ += result.bytes;
    held_ -= result.bytes;
    if (front_sent_ == parcel.bytes.size()) {
      parcels_.pop_front();
      front_sent_ = 0;
    }
  }
  return inner().pump();
}

}  // namespace deltawire
