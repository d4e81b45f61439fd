// Reuses memory that is taken and returned in every step.
#pragma once

#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "deltawire/tensor.h"

namespace deltawire {

// Counts the bytes that an exchange holds, by purpose. Not an estimate: every allocation is reported to it.
//
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

// A step that takes the same sizes as an earlier one allocates nothing. A new size displaces memory that the
// step doesn't use, so that no more is held than one step needed: DDP's first step has one bucket with the
// whole model, later ones have several, for which that memory is useless. Thread rule: one thread at a time.
// The pool must outlive its buffers.
class BufferPool {
 public:
  class Buffer {
   public:
    Buffer() noexcept = default;
    ~Buffer() { reset(); }
    Buffer(Buffer&& other) noexcept { swap(other); }
    Buffer& operator=(Buffer&& other) noexcept {
      swap(other);
      return *this;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;

    // As many bytes as were requested, uninitialized.
    MutBytes bytes() const noexcept { return {memory_.get(), bytes_}; }
    std::span<float> floats() const noexcept {
      return {reinterpret_cast<float*>(memory_.get()), bytes_ / sizeof(float)};
    }
    // Returns the memory to the pool.
    void reset() noexcept;

   private:
    friend class BufferPool;
    void swap(Buffer& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(memory_, other.memory_);
      std::swap(capacity_, other.capacity_);
      std::swap(bytes_, other.bytes_);
    }

    BufferPool* pool_ = nullptr;
    std::unique_ptr<std::byte[]> memory_;
    std::uint64_t capacity_ = 0;
    std::uint64_t bytes_ = 0;
  };

  BufferPool(std::shared_ptr<MemoryMeter> meter, MemoryMeter::Use use) : held_(std::move(meter), use) {}

  // If memory must be allocated, it gets `slack` more bytes, for sizes that vary slightly from step to step.
  Buffer take(std::uint64_t bytes, std::uint64_t slack = 0);

  // Frees memory that no step has used for a while; not at once, because the number of buckets in flight
  // varies.
  void end_step() noexcept;
  // Frees all memory that is not in use.
  void clear() noexcept;

 private:
  struct Idle {
    std::unique_ptr<std::byte[]> memory;
    std::uint64_t capacity = 0;
    std::uint64_t step = 0;  // of its last use
  };

  void make_room_for(std::uint64_t bytes) noexcept;
  void free_idle(std::size_t index) noexcept;
  void count() noexcept { held_.set(in_use_bytes_ + idle_bytes_); }

  std::vector<Idle> idle_;  // has capacity for all buffers, so that returning one doesn't allocate
  std::size_t in_use_ = 0;
  std::uint64_t in_use_bytes_ = 0;
  std::uint64_t idle_bytes_ = 0;
  std::uint64_t step_bytes_ = 0;       // of all buffers that this step has used
  std::uint64_t last_step_bytes_ = 0;  // of all buffers that the step before used
  std::uint64_t step_ = 0;
  MeteredBytes held_;
};

}  // namespace deltawire
