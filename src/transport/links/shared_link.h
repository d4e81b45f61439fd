// A Unix socket as a link whose bytes go through shared memory: they are copied once into the ring and once
// out of it, by the two processes at the same time, and the kernel copies none.
//
// The socket remains the doorbell and the sign of life. Nobody spins: an end that has nothing to do says so
// in the ring's state and polls the socket, as for any other link.
//  - A reader that finds the ring empty sets `reader_sleeps`; the writer that then adds bytes sends one byte.
//  - A writer that finds the ring full sets `writer_waits` and fills the socket, so that it isn't writable;
//  the
//    reader empties the socket once half of the ring is free.
// Each sets its flag and then looks at the other's position again; the other moves its position and then
// looks at the flag. All four are sequentially consistent, so at least one of them sees the other, and no
// wake-up is lost. A flag that is seen late costs a spurious wake-up, no more.
//
// A position moves after the bytes before it were copied: a process that is killed in between has written
// nothing. When the socket ends, what the ring holds is still received. Positions that the other end has
// written are read once and checked (EPROTO), and the own ones are kept outside of the shared memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "deltawire/tensor.h"
#include "transport/links/shared_areas.h"

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

class SharedLink final : public LinkDecorator {
 public:
  // `socket` is a link over a Unix socket in the clear, which carries nothing else from now on.
  SharedLink(std::unique_ptr<Link> socket, SharedMemory memory, SharedMemory::Side self) noexcept;

  IoResult send(std::span<const iovec> pieces) noexcept override;
  IoResult recv(MutBytes into) noexcept override;
  bool stands_alone() const noexcept override { return true; }
  bool holds_received() const noexcept override { return !sleeps_.load(std::memory_order_relaxed); }
  // The memory outlives both ends' links for whoever still has it.
  bool delivered() noexcept override { return true; }
  std::size_t unacknowledged() noexcept override { return 0; }

 private:
  // Of the sending thread.
  std::optional<std::size_t> room() const noexcept;
  void copy_in(Bytes bytes) noexcept;
  IoResult send_part(Bytes& rest, std::size_t room) noexcept;
  IoResult sent_since(std::uint64_t position) noexcept {
    const IoResult result = written_ > published_ ? publish() : IoResult::moved(0);
    return result.kind == IoResult::Kind::kOk ? IoResult::moved(written_ - position) : result;
  }
  IoResult publish() noexcept;
  IoResult await_room() noexcept;
  IoResult fill_socket() noexcept;
  // Of the receiving thread.
  std::optional<std::size_t> held() const noexcept;
  void take(MutBytes into) noexcept;
  void empty_socket() noexcept;

  const SharedMemory memory_;
  const std::size_t mask_;

  RingState& out_;
  const MutBytes out_bytes_;
  std::uint64_t written_ = 0;  // the peer may not know of all yet
  std::uint64_t published_ = 0;

  RingState& in_;
  const Bytes in_bytes_;
  std::uint64_t read_ = 0;
  IoResult end_ = IoResult::would_block();  // how the socket ended, if it has
  std::atomic<bool> sleeps_ = true;         // the peer will ring
};

}  // namespace deltawire
