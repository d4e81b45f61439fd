// Reuses memory that is taken and returned in every step.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/memory_meter.h"
#include "deltawire/tensor.h"

namespace deltawire {

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
