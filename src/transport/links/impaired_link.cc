#include "transport/links/impaired_link.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <deque>
#include <new>
#include <vector>

#include <sys/socket.h>

#include "transport/process/machine.h"

namespace deltawire {

namespace {

constexpr double kUsefulBytes = 4096;
// Longer waits are cut into pieces, so that a tiny rate can't overflow the clock.
constexpr double kLongestWaitSeconds = 3600;

}  // namespace

TokenBucket::TokenBucket(const LinkShape& shape, Deadline now) noexcept
    : rate_(shape.bytes_per_second),
      burst_(static_cast<double>(shape.burst_bytes)),
      tokens_(burst_),
      filled_at_(now) {}

void TokenBucket::refill(Deadline now) noexcept {
  if (now <= filled_at_) return;
  const double seconds = std::chrono::duration<double>(now - filled_at_).count();
  tokens_ = std::min(burst_, tokens_ + seconds * rate_);
  filled_at_ = now;
}

double TokenBucket::useful(std::size_t wanted) const noexcept {
  return std::min({kUsefulBytes, burst_, static_cast<double>(wanted)});
}

std::size_t TokenBucket::grant(std::size_t wanted, Deadline now) noexcept {
  refill(now);
  // The half byte absorbs rounding: without it a wake-up exactly on time could find 4095.9999 tokens.
  if (tokens_ + 0.5 < useful(wanted)) return 0;
  const auto granted = static_cast<std::size_t>(std::floor(tokens_ + 0.5));
  return std::clamp<std::size_t>(granted, 1, wanted);
}

Deadline TokenBucket::next_grant(std::size_t wanted, Deadline now) noexcept {
  refill(now);
  const double missing = std::max(0.0, useful(wanted) - tokens_);
  const double seconds = std::min(missing / rate_, kLongestWaitSeconds);
  return now + std::chrono::ceil<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
}

namespace {

constexpr std::size_t kHeldMax = std::size_t{8} << 20;
constexpr std::chrono::milliseconds kRetryFullSocket{1};

// A long line: every byte arrives `delay` later, with up to a limited number of bytes in flight.
class DelayedLink final : public LinkDecorator {
 public:
  DelayedLink(std::unique_ptr<Link> inner, std::chrono::milliseconds delay) noexcept
      : LinkDecorator(std::move(inner)), delay_(delay) {}

  IoResult send(std::span<const iovec> pieces) noexcept override;
  Deadline pump() noexcept override;

 private:
  struct Parcel {
    std::vector<std::byte> bytes;
    Deadline due;
  };

  std::chrono::milliseconds delay_;
  std::deque<Parcel> parcels_;
  std::size_t held_ = 0;        // bytes in all parcels
  std::size_t front_sent_ = 0;  // bytes of the first parcel that have gone
  IoResult failure_ = IoResult::moved(0);
};

IoResult DelayedLink::send(std::span<const iovec> pieces) noexcept {
  if (failure_.kind != IoResult::Kind::kOk) return failure_;
  const Deadline now = MachineClock::now();
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
  const Deadline now = MachineClock::now();
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

// Every kind but kDelay.
class FaultyLink final : public LinkDecorator {
 public:
  FaultyLink(std::unique_ptr<Link> inner, const LinkFault& fault) noexcept
      : LinkDecorator(std::move(inner)), fault_(fault) {}

  IoResult send(std::span<const iovec> pieces) noexcept override;

 private:
  IoResult send_from_fault_on(std::span<const iovec> pieces) noexcept;
  IoResult send_flipped(std::span<const iovec> pieces) noexcept;
  IoResult dribble(std::span<const iovec> pieces) noexcept;
  IoResult count(IoResult result) noexcept {
    position_ += result.bytes;
    return result;
  }

  LinkFault fault_;
  std::uint64_t position_ = 0;  // bytes that passed through
  Deadline next_byte_at_{};
};

IoResult FaultyLink::send(std::span<const iovec> pieces) noexcept {
  if (position_ < fault_.at_byte) {
    return count(inner().send(ClippedPieces(pieces, fault_.at_byte - position_).span()));
  }
  return count(send_from_fault_on(pieces));
}

IoResult FaultyLink::send_from_fault_on(std::span<const iovec> pieces) noexcept {
  switch (fault_.kind) {
    case LinkFault::Kind::kCut:
      // Both directions, like a pulled cable; the link keeps the descriptor itself until it ends.
      ::shutdown(fd(), SHUT_RDWR);
      return IoResult::closed();
    case LinkFault::Kind::kFlip: return send_flipped(pieces);
    case LinkFault::Kind::kDrop: return IoResult::moved(total_bytes(pieces));
    case LinkFault::Kind::kDribble: return dribble(pieces);
    case LinkFault::Kind::kDelay: break;  // handled by DelayedLink
  }
  return inner().send(pieces);
}

IoResult FaultyLink::send_flipped(std::span<const iovec> pieces) noexcept {
  if (position_ != fault_.at_byte) return inner().send(pieces);
  const ClippedPieces first(pieces, 1);
  std::byte flipped = *static_cast<const std::byte*>(first.span().back().iov_base);
  flipped ^= std::byte{1} << (fault_.at_byte % 8);
  const iovec piece{&flipped, 1};
  return inner().send({&piece, 1});
}

IoResult FaultyLink::dribble(std::span<const iovec> pieces) noexcept {
  const Deadline now = MachineClock::now();
  if (now < next_byte_at_) return IoResult::would_block(next_byte_at_);
  const IoResult result = inner().send(ClippedPieces(pieces, 1).span());
  if (result.kind == IoResult::Kind::kOk) next_byte_at_ = now + fault_.delay;
  return result;
}

}  // namespace

std::unique_ptr<Link> make_faulty_link(std::unique_ptr<Link> inner, const LinkFault& fault) {
  if (fault.kind == LinkFault::Kind::kDelay) {
    return std::make_unique<DelayedLink>(std::move(inner), fault.delay);
  }
  return std::make_unique<FaultyLink>(std::move(inner), fault);
}

}  // namespace deltawire
