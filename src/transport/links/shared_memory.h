// Memory that two ranks of one machine share: a ring of bytes for each direction, in a file without a name
// that the one makes and passes to the other over their Unix socket.
//
// The file is sealed: it can't shrink, so neither end can take pages away under the other's feet. All of it
// is allocated at once, so a full machine refuses it here and not later, by a signal.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "deltawire/tensor.h"
#include "transport/links/link.h"
#include "transport/process/fork_guard.h"

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
  SharedMemory(SharedMemory&& other) noexcept { swap(other); }
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    SharedMemory taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~SharedMemory();

  // Empty, with errno set, if the system refuses. REQUIRES: ring_bytes_for() gave the size.
  static SharedMemory make(std::size_t ring_bytes) noexcept;
  // What make() made at the other end. Empty if it is anything else, or if the system refuses.
  static SharedMemory take(GuardedFd file) noexcept;

  explicit operator bool() const noexcept { return at_ != nullptr; }
  // The maker's, until it is passed on and closed.
  GuardedFd& file() noexcept { return file_; }

  std::size_t ring_bytes() const noexcept { return ring_bytes_; }
  // The ring that `writer` fills.
  RingState& state(Side writer) const noexcept;
  MutBytes bytes(Side writer) const noexcept;

 private:
  SharedMemory(GuardedFd file, std::size_t ring_bytes) noexcept;  // maps it
  void swap(SharedMemory& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(at_, other.at_);
    std::swap(ring_bytes_, other.ring_bytes_);
    std::swap(generation_, other.generation_);
  }

  GuardedFd file_;
  std::byte* at_ = nullptr;
  std::size_t ring_bytes_ = 0;
  std::uint64_t generation_ = 0;  // of the process that mapped it; its forked children don't have it
};

// Sends one byte with a descriptor. REQUIRES: a Unix socket.
IoResult send_with_file(int socket, std::byte byte, const GuardedFd& file) noexcept;
// Receives one byte, and the descriptor that came with it, if one did.
IoResult receive_with_file(int socket, std::byte& byte, GuardedFd& file);

}  // namespace deltawire
