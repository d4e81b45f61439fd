// For tests: a global operator new that counts the bytes of each allocating thread, and can be made to fail.
#pragma once

#include <atomic>
#include <cstdint>

namespace deltawire::testing {

// The bytes allocated by one thread, wherever they are freed.
struct HeapCount {
  std::atomic<std::int64_t> held_bytes{0};
  std::atomic<std::int64_t> peak_bytes{0};
};

// Counts the calling thread's allocations in `count` from now on; nullptr: stops. The count must outlive the
// allocations.
void count_heap(HeapCount* count) noexcept;

// While armed, `count` allocations of the program, from number `failing` on (from 0, counted since), throw
// std::bad_alloc.
void arm_failure(std::int64_t failing, std::int64_t count = 1) noexcept;
// Returns the allocations since arm_failure.
std::int64_t disarm_failure() noexcept;

}  // namespace deltawire::testing
