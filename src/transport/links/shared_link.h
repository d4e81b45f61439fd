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

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

#include <sys/socket.h>

#include "base/copying.h"
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
  static std::size_t ring_bytes_for(std::size_t others) noexcept {
    if (others == 0) return 0;
    const std::size_t fair = std::bit_floor(kOwnRingsMax / 2 / others);
    return fair < kRingBytesMin ? 0 : std::min(fair, kRingBytesMax);
  }

  SharedMemory() noexcept = default;

  // Empty, with errno set, if the system refuses. REQUIRES: ring_bytes_for() gave the size.
  static SharedMemory make(std::size_t ring_bytes) noexcept {
    SharedMemory made(SharedFile::make(file_bytes(ring_bytes), SharedFile::Writers::kAll));
    if (!made) return {};
    for (const Side side : {Side::kMaker, Side::kTaker}) {
      // Nobody reads yet: whoever writes first rings.
      (new (&made.state(side)) RingState{})->reader_sleeps = 1;
    }
    return made;
  }

  // What make() made at the other end. Empty if it is anything else, or if the system refuses.
  static SharedMemory take(GuardedFd file) noexcept {
    SharedMemory taken(SharedFile::take(std::move(file), SharedFile::Writers::kAll));
    const std::size_t bytes = taken.file_.bytes().size();
    if (bytes < kStatesBytes || !is_ring(taken.ring_bytes()) || bytes != file_bytes(taken.ring_bytes()))
      return {};
    return taken;
  }

  explicit operator bool() const noexcept { return static_cast<bool>(file_); }
  // The maker's, until it is passed on and closed.
  GuardedFd& file() noexcept { return file_.file(); }

  std::size_t ring_bytes() const noexcept { return (file_.bytes().size() - kStatesBytes) / 2; }

  // The ring that `writer` fills.
  RingState& state(Side writer) const noexcept {
    auto* const states = reinterpret_cast<RingState*>(file_.bytes().data());
    return states[writer == Side::kMaker ? 0 : 1];
  }

  MutBytes bytes(Side writer) const noexcept {
    const std::size_t begin = kStatesBytes + (writer == Side::kMaker ? 0 : ring_bytes());
    return file_.bytes().subspan(begin, ring_bytes());
  }

 private:
  static constexpr std::size_t kOwnRingsMax = std::size_t{32} << 20;

  // Both states, and what is left of their page.
  static constexpr std::size_t kStatesBytes = 4096;

  static_assert(2 * sizeof(RingState) <= kStatesBytes);

  static constexpr std::size_t file_bytes(std::size_t ring_bytes) noexcept {
    return kStatesBytes + 2 * ring_bytes;
  }

  static bool is_ring(std::size_t bytes) noexcept {
    return std::has_single_bit(bytes) && bytes >= kRingBytesMin && bytes <= kRingBytesMax;
  }

  explicit SharedMemory(SharedFile file) noexcept : file_(std::move(file)) {}

  SharedFile file_;
};

class SharedLink final : public LinkDecorator {
 public:
  // `socket` is a link over a Unix socket in the clear, which carries nothing else from now on.
  SharedLink(std::unique_ptr<Link> socket, SharedMemory memory, SharedMemory::Side self) noexcept
      : LinkDecorator(std::move(socket)),
        memory_(std::move(memory)),
        mask_(memory_.ring_bytes() - 1),
        out_(memory_.state(self)),
        out_bytes_(memory_.bytes(self)),
        in_(memory_.state(other_side(self))),
        in_bytes_(memory_.bytes(other_side(self))) {
    // The kernel's least: fill_socket() fills it.
    const int least = 0;
    (void)::setsockopt(fd(), SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
  }

  IoResult send(std::span<const iovec> pieces) noexcept override {
    const std::uint64_t before = written_;
    IoResult result = room() == kNoRoom ? await_room() : IoResult::moved(0);
    for (const iovec& piece : pieces) {
      Bytes rest(static_cast<const std::byte*>(piece.iov_base), piece.iov_len);
      while (!rest.empty() && result.kind == IoResult::Kind::kOk) {
        const std::optional<std::size_t> room = this->room();
        if (!room) return kNonsense;
        if (*room == 0) return sent_since(before);
        result = send_part(rest, *room);
      }
      if (result.kind != IoResult::Kind::kOk) return result;
    }
    return sent_since(before);
  }

  IoResult recv(MutBytes into) noexcept override {
    // Once it has ended it stays readable, so what the ring holds is read first.
    if (sleeps_.exchange(false, std::memory_order_relaxed)) empty_socket();
    std::size_t got = 0;
    while (got < into.size()) {
      const std::optional<std::size_t> held = this->held();
      if (!held) return kNonsense;
      if (*held == 0) {
        if (sleeps_.load(std::memory_order_relaxed)) break;
        in_.reader_sleeps.store(1);
        sleeps_.store(true, std::memory_order_relaxed);
        continue;
      }
      sleeps_.store(false, std::memory_order_relaxed);
      const std::size_t part = std::min({*held, into.size() - got, kPortionBytes});
      take(into.subspan(got, part));
      got += part;
      if (*held - part <= in_bytes_.size() / 2 && in_.writer_waits.load() != 0) {
        in_.writer_waits.store(0);
        empty_socket();
      }
    }
    return got > 0 ? IoResult::moved(got) : end_;
  }

  bool stands_alone() const noexcept override { return true; }
  bool holds_received() const noexcept override { return !sleeps_.load(std::memory_order_relaxed); }
  // The memory outlives both ends' links for whoever still has it.
  bool delivered() noexcept override { return true; }
  std::size_t unacknowledged() noexcept override { return 0; }

 private:
  // The other end can begin with a portion while the next one is copied.
  static constexpr std::size_t kPortionBytes = std::size_t{64} << 10;

  // More than a socket with the least send buffer takes.
  using Filling = std::array<std::byte, std::size_t{16} << 10>;

  // A peer that fills or empties the socket at the same time must not keep this rank busy.
  static constexpr int kTriesMax = 64;
  static constexpr std::optional<std::size_t> kNoRoom = 0;
  static constexpr IoResult kNonsense{IoResult::Kind::kError, 0, EPROTO, kNever};

  static SharedMemory::Side other_side(SharedMemory::Side side) noexcept {
    return side == SharedMemory::Side::kMaker ? SharedMemory::Side::kTaker : SharedMemory::Side::kMaker;
  }

  // Of the sending thread.
  std::optional<std::size_t> room() const noexcept {
    const std::uint64_t unread = written_ - out_.read.load();
    if (unread > out_bytes_.size()) return std::nullopt;
    return out_bytes_.size() - static_cast<std::size_t>(unread);
  }

  // REQUIRES: there is room.
  void copy_in(Bytes bytes) noexcept {
    const std::size_t at = static_cast<std::size_t>(written_) & mask_;
    const std::size_t first = std::min(bytes.size(), out_bytes_.size() - at);
    copy_cached(out_bytes_.data() + at, bytes.data(), first);
    copy_cached(out_bytes_.data(), bytes.data() + first, bytes.size() - first);
    written_ += bytes.size();
  }

  // Copies bytes of `rest`, at most what fills the portion and the room, and publishes a full portion.
  IoResult send_part(Bytes& rest, std::size_t room) noexcept {
    const std::size_t unpublished = static_cast<std::size_t>(written_ - published_);
    const Bytes part = rest.first(std::min({rest.size(), room, kPortionBytes - unpublished}));
    copy_in(part);
    rest = rest.subspan(part.size());
    return unpublished + part.size() == kPortionBytes ? publish() : IoResult::moved(0);
  }

  IoResult sent_since(std::uint64_t position) noexcept {
    const IoResult result = written_ > published_ ? publish() : IoResult::moved(0);
    return result.kind == IoResult::Kind::kOk ? IoResult::moved(written_ - position) : result;
  }
  // Shows the peer what was copied, and wakes it if it sleeps.
  IoResult publish() noexcept {
    published_ = written_;
    out_.written.store(written_);
    if (out_.reader_sleeps.load() == 0) return IoResult::moved(0);
    out_.reader_sleeps.store(0);
    const std::byte bell{};
    const IoResult rung = inner().send_bytes({&bell, 1});
    // A full socket rings by itself.
    return rung.kind == IoResult::Kind::kWouldBlock ? IoResult::moved(0) : rung;
  }

  // Arranges that the socket becomes writable when there is room, if there is none now.
  IoResult await_room() noexcept {
    out_.writer_waits.store(1);
    IoResult arranged = IoResult::moved(0);
    if (room() == kNoRoom) arranged = fill_socket();
    // The peer may have emptied the socket just before it was filled; but it had made room before that.
    if (arranged.kind == IoResult::Kind::kOk && room() == kNoRoom) return IoResult::would_block();
    out_.writer_waits.store(0);
    return arranged;
  }

  // So that it becomes writable when the peer has made room.
  IoResult fill_socket() noexcept {
    static const Filling filling{};
    IoResult filled = IoResult::moved(filling.size());
    for (int i = 0; i < kTriesMax && filled.bytes == filling.size(); ++i)
      filled = inner().send_bytes(filling);
    return filled.kind == IoResult::Kind::kWouldBlock ? IoResult::moved(0) : filled;
  }

  // Of the receiving thread.
  std::optional<std::size_t> held() const noexcept {
    const std::uint64_t unread = in_.written.load() - read_;
    if (unread > in_bytes_.size()) return std::nullopt;
    return static_cast<std::size_t>(unread);
  }

  // REQUIRES: the ring holds as much.
  void take(MutBytes into) noexcept {
    const std::size_t at = static_cast<std::size_t>(read_) & mask_;
    const std::size_t first = std::min(into.size(), in_bytes_.size() - at);
    copy_cached(into.data(), in_bytes_.data() + at, first);
    copy_cached(into.data() + first, in_bytes_.data(), into.size() - first);
    read_ += into.size();
    in_.read.store(read_);
  }

  void empty_socket() noexcept {
    Filling bytes;
    IoResult got = IoResult::moved(bytes.size());
    for (int i = 0; i < kTriesMax && got.bytes == bytes.size(); ++i) got = inner().recv(bytes);
    if (got.kind == IoResult::Kind::kClosed || got.kind == IoResult::Kind::kError) end_ = got;
  }

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
