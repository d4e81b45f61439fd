// Counts the bytes that cross a link.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "transport/link.h"

namespace deltawire {

// The counters of one rank, shared by all its links and read by any thread.
class TrafficMeter {
 public:
  void add_sent(std::size_t bytes) noexcept { sent_.fetch_add(bytes, std::memory_order_relaxed); }
  void add_received(std::size_t bytes) noexcept { received_.fetch_add(bytes, std::memory_order_relaxed); }
  Traffic total() const noexcept {
    return {sent_.load(std::memory_order_relaxed), received_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

class MeteredLink final : public LinkDecorator {
 public:
  MeteredLink(std::unique_ptr<Link> inner, std::shared_ptr<TrafficMeter> meter) noexcept
      : LinkDecorator(std::move(inner)), meter_(std::move(meter)) {}

  IoResult send(std::span<const iovec> pieces) noexcept override {
    const IoResult result = inner().send(pieces);
    meter_->add_sent(result.bytes);
    return result;
  }
  IoResult recv(MutBytes into) noexcept override {
    const IoResult result = inner().recv(into);
    meter_->add_received(result.bytes);
    return result;
  }

 private:
  std::shared_ptr<TrafficMeter> meter_;
};

}  // namespace deltawire
