#include "transport/faulty/faulty_link.h"

#include <sys/socket.h>

#include "transport/faulty/delayed_link.h"

namespace deltawire {

std::unique_ptr<Link> make_faulty_link(std::unique_ptr<Link> inner, const LinkFault& fault) {
  if (fault.kind == LinkFault::Kind::kDelay) {
    return std::make_unique<DelayedLink>(std::move(inner), fault.delay);
  }
  return std::make_unique<FaultyLink>(std::move(inner), fault);
}

IoResult FaultyLink::send(std::span<const iovec> pieces) noexcept {
  if (position_ < fault_.at_byte) {
    return count(inner().send(ClippedPieces(pieces, fault_.at_byte - position_).span()));
  }
  return count(send_from_fault_on(pieces));
}

IoResult FaultyLink::send_from_fault_on(std::span<const iovec> pieces) noexcept {
  switch (fault_.kind) {
    case LinkFault::Kind::kCut:
      // Both directions, as a pulled cable would; the descriptor itself stays ours until the link ends.
      ::shutdown(fd(), SHUT_RDWR);
      return IoResult::closed();
    case LinkFault::Kind::kFlip: return send_flipped(pieces);
    case LinkFault::Kind::kDrop: return IoResult::moved(total_bytes(pieces));
    case LinkFault::Kind::kDribble: return dribble(pieces);
    case LinkFault::Kind::kDelay: break;  // a DelayedLink's business
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
  const Deadline now = Clock::now();
  if (now < next_byte_at_) return IoResult::would_block(next_byte_at_);
  const IoResult result = inner().send(ClippedPieces(pieces, 1).span());
  if (result.kind == IoResult::Kind::kOk) next_byte_at_ = now + fault_.delay;
  return result;
}

}  // namespace deltawire
