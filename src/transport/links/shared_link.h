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
#include <memory>
#include <optional>

#include "transport/links/shared_memory.h"

namespace deltawire {

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
  IoResult sent_since(std::uint64_t position) noexcept;
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
