// Memory that is taken and given back in every step: what one user gives back, the next takes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/memory_meter.h"
#include "deltawire/tensor.h"

namespace deltawire {

// Steps that take what earlier ones took allocate nothing. What a step takes anew displaces what it has no
// use for, so that no more is held than one step took: DDP's first step has one bucket with the whole model,
// the later ones several, to which its memory is of no use. Thread rule: one thread at a time. The pool
// outlives its buffers.
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

    // What was asked for; the content is not initialized.
    MutBytes bytes() const noexcept { return {memory_.get(), bytes_}; }
    std::span<float> floats() const noexcept {
      return {reinterpret_cast<float*>(memory_.get()), bytes_ / sizeof(float)};
    }
    // Gives the memory back to the pool.
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

  // Memory that must be new gets `slack` bytes more, for sizes that differ a little from step to step.
  Buffer take(std::uint64_t bytes, std::uint64_t slack = 0);

  // Frees what no step has used for a while: how many buckets are in flight together differs.
  void end_step() noexcept;
  // Frees all that is not in use.
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

  std::vector<Idle> idle_;  // has room for all buffers, so that giving back needs no memory
  std::size_t in_use_ = 0;
  std::uint64_t in_use_bytes_ = 0;
  std::uint64_t idle_bytes_ = 0;
  std::uint64_t step_bytes_ = 0;       // of all buffers that this step has used
  std::uint64_t last_step_bytes_ = 0;  // and that the one before did
  std::uint64_t step_ = 0;
  MeteredBytes held_;
};

}  // namespace deltawire
