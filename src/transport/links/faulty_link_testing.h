// Links that are broken on purpose, around others.
#pragma once

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "transport/links/link.h"
#include "transport/process/machine.h"

namespace deltawire::test {

// A defect of the data stream from this rank to `peer`. Byte positions count data
// bytes sent to that peer, message headers included, the handshake not.
struct LinkFault {
  enum class Kind : std::uint8_t {
    kDelay,    // hold every byte back for `delay`, up to 8 MiB of them at once
    kCut,      // close the connection at `at_byte`
    kFlip,     // invert bit `at_byte` % 8 of the byte at `at_byte`
    kDrop,     // swallow everything from `at_byte` on
    kDribble,  // from `at_byte` on, one byte every `delay`
  };
  Kind kind = Kind::kDelay;
  int peer = 0;
  std::uint64_t at_byte = 0;
  std::chrono::milliseconds delay{0};
};

inline constexpr std::size_t kHeldMax = std::size_t{8} << 20;
inline constexpr std::chrono::milliseconds kRetryFullSocket{1};

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

inline IoResult DelayedLink::send(std::span<const iovec> pieces) noexcept {
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

inline Deadline DelayedLink::pump() noexcept {
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

inline IoResult FaultyLink::send(std::span<const iovec> pieces) noexcept {
  if (position_ < fault_.at_byte) {
    return count(inner().send(ClippedPieces(pieces, fault_.at_byte - position_).span()));
  }
  return count(send_from_fault_on(pieces));
}

inline IoResult FaultyLink::send_from_fault_on(std::span<const iovec> pieces) noexcept {
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

inline IoResult FaultyLink::send_flipped(std::span<const iovec> pieces) noexcept {
  if (position_ != fault_.at_byte) return inner().send(pieces);
  const ClippedPieces first(pieces, 1);
  std::byte flipped = *static_cast<const std::byte*>(first.span().back().iov_base);
  flipped ^= std::byte{1} << (fault_.at_byte % 8);
  const iovec piece{&flipped, 1};
  return inner().send({&piece, 1});
}

inline IoResult FaultyLink::dribble(std::span<const iovec> pieces) noexcept {
  const Deadline now = MachineClock::now();
  if (now < next_byte_at_) return IoResult::would_block(next_byte_at_);
  const IoResult result = inner().send(ClippedPieces(pieces, 1).span());
  if (result.kind == IoResult::Kind::kOk) next_byte_at_ = now + fault_.delay;
  return result;
}

// For LinkOptions::wrap.
inline auto faulty(const LinkFault& fault) {
  return [fault](int peer, std::unique_ptr<Link> link) -> std::unique_ptr<Link> {
    if (peer != fault.peer) return link;
    if (fault.kind == LinkFault::Kind::kDelay)
      return std::make_unique<DelayedLink>(std::move(link), fault.delay);
    return std::make_unique<FaultyLink>(std::move(link), fault);
  };
}

}  // namespace deltawire::test
