// A link that is slow on purpose, around another one.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
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
  TokenBucket(const LinkShape& shape, Deadline now) noexcept
      : rate_(shape.bytes_per_second),
        burst_(static_cast<double>(shape.burst_bytes)),
        tokens_(burst_),
        filled_at_(now) {}

  // How many of `wanted` bytes may be sent now: 0 unless it is a useful amount, since a wake-up for every few
  // bytes would cost too much time.
  std::size_t grant(std::size_t wanted, Deadline now) noexcept {
    refill(now);
    // The half byte absorbs rounding: without it a wake-up exactly on time could find 4095.9999 tokens.
    if (tokens_ + 0.5 < useful(wanted)) return 0;
    const auto granted = static_cast<std::size_t>(std::floor(tokens_ + 0.5));
    return std::clamp<std::size_t>(granted, 1, wanted);
  }

  // When grant(wanted, ...) will give something.
  Deadline next_grant(std::size_t wanted, Deadline now) noexcept {
    refill(now);
    const double missing = std::max(0.0, useful(wanted) - tokens_);
    const double seconds = std::min(missing / rate_, kLongestWaitSeconds);
    return now + std::chrono::ceil<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds));
  }

  void spend(std::size_t bytes) noexcept { tokens_ -= static_cast<double>(bytes); }

 private:
  static constexpr double kUsefulBytes = 4096;
  // Longer waits are cut into pieces, so that a tiny rate can't overflow the clock.
  static constexpr double kLongestWaitSeconds = 3600;

  void refill(Deadline now) noexcept {
    if (now <= filled_at_) return;
    const double seconds = std::chrono::duration<double>(now - filled_at_).count();
    tokens_ = std::min(burst_, tokens_ + seconds * rate_);
    filled_at_ = now;
  }

  double useful(std::size_t wanted) const noexcept {
    return std::min({kUsefulBytes, burst_, static_cast<double>(wanted)});
  }

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
