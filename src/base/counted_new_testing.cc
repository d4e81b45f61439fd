#include "base/counted_new_testing.h"

#include <cstdlib>
#include <new>

namespace deltawire::testing {
namespace {

// Before each block, of the block's alignment.
struct Head {
  HeapCount* count;
  std::int64_t bytes;
};
constexpr std::size_t kHeadBytes = 64;

thread_local HeapCount* counting = nullptr;
std::atomic<std::int64_t> allocations{0};
std::atomic<std::int64_t> first_failing{0};
std::atomic<std::int64_t> last_failing{-1};
std::atomic<bool> armed{false};

void* allocate(std::size_t bytes) {
  if (armed.load(std::memory_order_relaxed)) {
    const std::int64_t number = allocations.fetch_add(1);
    if (first_failing <= number && number <= last_failing) throw std::bad_alloc();
  }
  auto* memory =
      static_cast<std::byte*>(std::aligned_alloc(kHeadBytes, (bytes / kHeadBytes + 2) * kHeadBytes));
  if (memory == nullptr) throw std::bad_alloc();
  const auto counted = static_cast<std::int64_t>(bytes);
  new (memory) Head{counting, counted};
  if (counting != nullptr) {
    const std::int64_t held = counting->held_bytes.fetch_add(counted) + counted;
    std::int64_t peak = counting->peak_bytes.load();
    while (peak < held && !counting->peak_bytes.compare_exchange_weak(peak, held)) {
    }
  }
  return memory + kHeadBytes;
}

void release(void* block) noexcept {
  if (block == nullptr) return;
  std::byte* memory = static_cast<std::byte*>(block) - kHeadBytes;
  const Head& head = *reinterpret_cast<Head*>(memory);
  if (head.count != nullptr) head.count->held_bytes.fetch_sub(head.bytes);
  std::free(memory);
}

}  // namespace

void count_heap(HeapCount* count) noexcept {
  counting = count;
}

void arm_failure(std::int64_t failing, std::int64_t count) noexcept {
  allocations = 0;
  first_failing = failing;
  last_failing = failing + count - 1;
  armed = true;
}

std::int64_t disarm_failure() noexcept {
  armed = false;
  return allocations;
}

}  // namespace deltawire::testing

void* operator new(std::size_t bytes) {
  return deltawire::testing::allocate(bytes);
}
void* operator new[](std::size_t bytes) {
  return deltawire::testing::allocate(bytes);
}
void operator delete(void* block) noexcept {
  deltawire::testing::release(block);
}
void operator delete[](void* block) noexcept {
  deltawire::testing::release(block);
}
void operator delete(void* block, std::size_t) noexcept {
  deltawire::testing::release(block);
}
void operator delete[](void* block, std::size_t) noexcept {
  deltawire::testing::release(block);
}
