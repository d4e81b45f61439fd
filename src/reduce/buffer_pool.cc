#include "reduce/buffer_pool.h"

#include <algorithm>

namespace deltawire {
namespace {

// A buffer may serve for something smaller by this much: messages of equal parts differ a little in size.
constexpr std::uint64_t wasted_at_most(std::uint64_t bytes) noexcept {
  return bytes / 8 + 4096;
}

}  // namespace

BufferPool::Buffer BufferPool::take(std::uint64_t bytes) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  auto best = idle_.end();
  for (auto idle = idle_.begin(); idle != idle_.end(); ++idle) {
    if (idle->capacity < bytes || idle->capacity - bytes > wasted_at_most(bytes)) continue;
    if (best == idle_.end() || idle->capacity < best->capacity) best = idle;
  }
  if (best != idle_.end()) {
    buffer.memory_ = std::move(best->memory);
    buffer.capacity_ = best->capacity;
    idle_bytes_ -= best->capacity;
    idle_.erase(best);
  } else {
    const std::uint64_t allowed = std::max(last_peak_, step_peak_);
    const std::uint64_t needed = in_use_bytes_ + bytes;
    shrink_idle_to(allowed - std::min(allowed, needed));
    idle_.reserve(idle_.size() + in_use_ + 1);
    buffer.memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    buffer.capacity_ = bytes;
  }
  buffer.pool_ = this;
  buffer.bytes_ = bytes;
  ++in_use_;
  in_use_bytes_ += buffer.capacity_;
  step_peak_ = std::max(step_peak_, in_use_bytes_);
  count();
  return buffer;
}

void BufferPool::Buffer::reset() noexcept {
  if (pool_ == nullptr) return;
  --pool_->in_use_;
  pool_->in_use_bytes_ -= capacity_;
  pool_->idle_bytes_ += capacity_;
  pool_->idle_.push_back({std::move(memory_), capacity_, pool_->step_});
  pool_ = nullptr;
  bytes_ = 0;
  capacity_ = 0;
}

void BufferPool::free_idle(std::size_t index) noexcept {
  idle_bytes_ -= idle_[index].capacity;
  idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(index));
}

// The longest unused go first: they are from another step's buckets.
void BufferPool::shrink_idle_to(std::uint64_t bytes) noexcept {
  while (idle_bytes_ > bytes) {
    const auto oldest = std::min_element(idle_.begin(), idle_.end(),
                                         [](const Idle& a, const Idle& b) { return a.step < b.step; });
    free_idle(static_cast<std::size_t>(oldest - idle_.begin()));
  }
  count();
}

void BufferPool::end_step() noexcept {
  for (std::size_t i = idle_.size(); i > 0; --i) {
    if (idle_[i - 1].step != step_) free_idle(i - 1);
  }
  ++step_;
  last_peak_ = step_peak_;
  step_peak_ = in_use_bytes_;
  count();
}

void BufferPool::clear() noexcept {
  idle_.clear();
  idle_bytes_ = 0;
  last_peak_ = 0;
  step_peak_ = in_use_bytes_;
  count();
}

}  // namespace deltawire
