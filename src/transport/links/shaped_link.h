// A link that is slow on purpose, around another one.
#pragma once

#include <cstddef>
#include <memory>

#include "deltawire/connect.h"
#include "transport/links/link.h"
#include "transport/process/machine.h"

namespace deltawire {

// One token is one byte; tokens arrive at a steady rate and at most `burst` accumulate.
class TokenBucket {
 public:
  // Full at `now`. REQUIRES: shape.bytes_per_second > 0, shape.burst_bytes > 0.
  TokenBucket(const LinkShape& shape, Deadline now) noexcept;

  // How many of `wanted` bytes may be sent now: 0 unless it is a useful amount, since a wake-up for every few
  // bytes would cost too much time.
  std::size_t grant(std::size_t wanted, Deadline now) noexcept;

  // When grant(wanted, ...) will give something.
  Deadline next_grant(std::size_t wanted, Deadline now) noexcept;

  void spend(std::size_t bytes) noexcept { tokens_ -= static_cast<double>(bytes); }

 private:
  void refill(Deadline now) noexcept;
  double useful(std::size_t wanted) const noexcept;

  double rate_;
  double burst_;
  double tokens_;
  Deadline filled_at_;
};

struct LineBuckets {
  TokenBucket egress;
  TokenBucket ingress;
};

// A link as slow as a given line. All data links of a rank share two buckets, one for each direction, as
// the connections of a machine share its network card.
class ShapedLink final : public LinkDecorator {
 public:
  ShapedLink(std::unique_ptr<Link> inner, std::shared_ptr<LineBuckets> line) noexcept
      : LinkDecorator(std::move(inner)), line_(std::move(line)) {}

  IoResult send(std::span<const iovec> pieces) noexcept override {
    const Deadline now = MachineClock::now();
    const std::size_t wanted = total_bytes(pieces);
    const std::size_t granted = line_->egress.grant(wanted, now);
    if (granted == 0) return IoResult::would_block(line_->egress.next_grant(wanted, now));
    const IoResult result = inner().send(ClippedPieces(pieces, granted).span());
    line_->egress.spend(result.bytes);
    return result;
  }

  IoResult recv(MutBytes into) noexcept override {
    const Deadline now = MachineClock::now();
    const std::size_t granted = line_->ingress.grant(into.size(), now);
    if (granted == 0) return IoResult::would_block(line_->ingress.next_grant(into.size(), now));
    const IoResult result = inner().recv(into.first(granted));
    line_->ingress.spend(result.bytes);
    return result;
  }

 private:
  std::shared_ptr<LineBuckets> line_;
};

}  // namespace deltawire
