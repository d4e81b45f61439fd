// A token bucket: one token is one byte; tokens come at a steady rate and at most `burst` are saved up.
//
// Thread rule: one thread at a time (the lock of the engine whose links share the bucket).
#pragma once

#include <cstddef>

#include "deltawire/connect.h"
#include "transport/link.h"

namespace deltawire {

class TokenBucket {
 public:
  // Full at `now`. REQUIRES: shape.bytes_per_second > 0, shape.burst_bytes > 0.
  TokenBucket(const LinkShape& shape, Deadline now) noexcept;

  // How many of `wanted` bytes may go now: 0 unless it is a useful amount. A wake-up for each few bytes
  // would cost more time than it shapes.
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

}  // namespace deltawire
