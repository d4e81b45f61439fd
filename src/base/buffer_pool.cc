#include "base/buffer_pool.h"

#include <algorithm>
#include <cassert>

#include "deltawire/huge_pages.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kStepsKept = 32;

}  // namespace

BufferPool::Buffer BufferPool::take(std::uint64_t bytes, std::uint64_t slack) {
  Buffer buffer;
  if (bytes == 0) return buffer;
  auto best = idle_.end();
  for (auto idle = idle_.begin(); idle != idle_.end(); ++idle) {
    // A request may be smaller by its slack and this much.
    if (idle->capacity < bytes || idle->capacity - bytes > slack + bytes / 8 + 4096) continue;
    if (best == idle_.end() || idle->capacity < best->capacity) best = idle;
  }
  if (best != idle_.end()) {
    assert(best->capacity >= bytes && idle_bytes_ >= best->capacity);
    buffer.memory_ = std::move(best->memory);
    buffer.capacity_ = best->capacity;
    if (best->step != step_) step_bytes_ += best->capacity;
    idle_bytes_ -= best->capacity;
    idle_.erase(best);
  } else {
    make_room_for(bytes + slack);
    idle_.reserve(idle_.size() + in_use_ + 1);
    buffer.memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes + slack);
    buffer.capacity_ = bytes + slack;
    ask_for_huge_pages({buffer.memory_.get(), buffer.capacity_});
    step_bytes_ += buffer.capacity_;
  }
  buffer.pool_ = this;
  buffer.bytes_ = bytes;
  ++in_use_;
  assert(buffer.capacity_ >= bytes);
  in_use_bytes_ += buffer.capacity_;
  count();
  return buffer;
}

void BufferPool::Buffer::reset() noexcept {
  if (pool_ == nullptr) return;
  assert(memory_ != nullptr && bytes_ <= capacity_);
  assert(pool_->in_use_ > 0 && pool_->in_use_bytes_ >= capacity_);
  assert(pool_->idle_.size() < pool_->idle_.capacity());
  --pool_->in_use_;
  pool_->in_use_bytes_ -= capacity_;
  pool_->idle_bytes_ += capacity_;
  pool_->idle_.push_back({std::move(memory_), capacity_, pool_->step_});
  pool_ = nullptr;
  bytes_ = 0;
  capacity_ = 0;
}

void BufferPool::free_idle(std::size_t index) noexcept {
  assert(index < idle_.size() && idle_bytes_ >= idle_[index].capacity);
  idle_bytes_ -= idle_[index].capacity;
  idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(index));
}

// Frees buffers that this step has not used, the least recently used first, until all together hold no more
// than one step needed. step_bytes_ counts the used ones.
void BufferPool::make_room_for(std::uint64_t bytes) noexcept {
  const std::uint64_t most = std::max(last_step_bytes_, step_bytes_ + bytes);
  while (in_use_bytes_ + idle_bytes_ + bytes > most) {
    assert(!idle_.empty());
    const auto oldest = std::ranges::min_element(idle_, {}, &Idle::step);
    free_idle(static_cast<std::size_t>(oldest - idle_.begin()));
  }
  count();
}

void BufferPool::end_step() noexcept {
  for (std::size_t i = idle_.size(); i > 0; --i) {
    if (idle_[i - 1].step + kStepsKept < step_) free_idle(i - 1);
  }
  ++step_;
  last_step_bytes_ = step_bytes_;
  step_bytes_ = in_use_bytes_;
  count();
}

void BufferPool::clear() noexcept {
  idle_.clear();
  idle_bytes_ = 0;
  last_step_bytes_ = 0;
  step_bytes_ = in_use_bytes_;
  count();
}

}  // namespace deltawire
