// Counts the bytes that an exchange holds, by purpose. Not an estimate: every allocation is reported to it.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace deltawire {

// Thread rule: any thread may call any member.
class MemoryMeter {
 public:
  enum class Use : std::uint8_t { kResiduals, kStaging, kMessages };

  void add(Use use, std::uint64_t bytes) noexcept {
    held_[static_cast<std::size_t>(use)] += bytes;
    const std::uint64_t total = total_ += bytes;
    std::uint64_t peak = peak_;
    while (peak < total && !peak_.compare_exchange_weak(peak, total)) {
    }
  }
  void remove(Use use, std::uint64_t bytes) noexcept {
    assert(held(use) >= bytes && total_ >= bytes);
    held_[static_cast<std::size_t>(use)] -= bytes;
    total_ -= bytes;
  }

  std::uint64_t held(Use use) const noexcept { return held_[static_cast<std::size_t>(use)]; }
  // The largest number of bytes that were held at one time, for all purposes together.
  std::uint64_t peak() const noexcept { return peak_; }

 private:
  std::array<std::atomic<std::uint64_t>, 3> held_{};
  std::atomic<std::uint64_t> total_{0};
  std::atomic<std::uint64_t> peak_{0};
};

// The bytes of one holder, counted for its lifetime.
class MeteredBytes {
 public:
  MeteredBytes() noexcept = default;
  MeteredBytes(std::shared_ptr<MemoryMeter> meter, MemoryMeter::Use use) noexcept
      : meter_(std::move(meter)), use_(use) {}
  ~MeteredBytes() { set(0); }
  MeteredBytes(MeteredBytes&& other) noexcept
      : meter_(std::move(other.meter_)), use_(other.use_), bytes_(std::exchange(other.bytes_, 0)) {}
  MeteredBytes& operator=(MeteredBytes&& other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(use_, other.use_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  MeteredBytes(const MeteredBytes&) = delete;
  MeteredBytes& operator=(const MeteredBytes&) = delete;

  void set(std::uint64_t bytes) noexcept {
    if (!meter_) return;
    if (bytes > bytes_) meter_->add(use_, bytes - bytes_);
    if (bytes < bytes_) meter_->remove(use_, bytes_ - bytes);
    bytes_ = bytes;
  }
  std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<MemoryMeter> meter_;
  MemoryMeter::Use use_ = MemoryMeter::Use::kStaging;
  std::uint64_t bytes_ = 0;
};

}  // namespace deltawire
