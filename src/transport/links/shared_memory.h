// Memory that two ranks of one machine share: a ring of bytes for each direction, in a file that the one
// makes and passes to the other over their Unix socket.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "deltawire/tensor.h"
#include "transport/links/shared_file.h"

namespace deltawire {

// Where one direction's bytes stand, in shared memory. Positions count bytes from the beginning and never
// wrap. Each end writes its own cache line, except that it clears the other's flag when it wakes it.
struct RingState {
  // The writer's.
  alignas(64) std::atomic<std::uint64_t> written;
  std::atomic<std::uint32_t> writer_waits;  // for room
  // The reader's.
  alignas(64) std::atomic<std::uint64_t> read;
  std::atomic<std::uint32_t> reader_sleeps;  // until there are bytes
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "two processes share them");

class SharedMemory {
 public:
  enum class Side : std::uint8_t { kMaker, kTaker };
  static constexpr std::size_t kRingBytesMax = std::size_t{1} << 20;
  static constexpr std::size_t kRingBytesMin = std::size_t{128} << 10;

  // How large each ring is for a rank that shares memory with so many others, so that it has at most 32 MiB
  // of rings; 0: too many others.
  static std::size_t ring_bytes_for(std::size_t others) noexcept;

  SharedMemory() noexcept = default;

  // Empty, with errno set, if the system refuses. REQUIRES: ring_bytes_for() gave the size.
  static SharedMemory make(std::size_t ring_bytes) noexcept;
  // What make() made at the other end. Empty if it is anything else, or if the system refuses.
  static SharedMemory take(GuardedFd file) noexcept;

  explicit operator bool() const noexcept { return static_cast<bool>(file_); }
  // The maker's, until it is passed on and closed.
  GuardedFd& file() noexcept { return file_.file(); }

  std::size_t ring_bytes() const noexcept;
  // The ring that `writer` fills.
  RingState& state(Side writer) const noexcept;
  MutBytes bytes(Side writer) const noexcept;

 private:
  explicit SharedMemory(SharedFile file) noexcept : file_(std::move(file)) {}

  SharedFile file_;
};

}  // namespace deltawire
