// A long line: every byte arrives `delay` later, with as many on their way as the line holds.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "transport/link.h"

namespace deltawire {

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

}  // namespace deltawire
