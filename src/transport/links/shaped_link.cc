#include "transport/links/shaped_link.h"

#include <algorithm>
#include <chrono>
#include <cmath>

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

}  // namespace deltawire
