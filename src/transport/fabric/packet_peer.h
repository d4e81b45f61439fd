// A PacketPort's state for one other rank: the windows of both lanes, in both directions.
//
// A sender may have as many packets in flight as the window of their lane has places; the receiver grants
// places again as it consumes packets. So every packet that arrives finds room, however slowly its bytes are
// consumed, neither lane blocks the other, and a fast rank fills its own window, not the memory of a slow
// one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <sys/eventfd.h>
#include <unistd.h>

#include "deltawire/tensor.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

// The packets of a mesh over Gloo or MPI: a header of 24 bytes, little-endian, then the payload.
//
//   0  u32  magic
//   4  u32  CRC-32C of bytes 8 to 24
//   8  u32  kind
//  12  u32  payload bytes
//  16  u32  data packets from the receiver that the sender has consumed, since the start, modulo 2^32
//  20  u32  control packets, likewise

inline constexpr std::size_t kPacketHeaderBytes = 24;
// Header and payload. Larger packets are faster over Gloo, where each needs a notification from the receiver;
// smaller ones need less memory.
inline constexpr std::size_t kPacketBytes = std::size_t{128} << 10;
inline constexpr std::size_t kPayloadMax = kPacketBytes - kPacketHeaderBytes;

// The two streams of a pair of ranks.
enum class Lane : std::uint8_t { kData = 0, kControl = 1 };
inline constexpr std::size_t kLanes = 2;

struct PacketHeader {
  enum class Kind : std::uint8_t {
    kHandshake = 1,  // the first to each peer: who sends, and with which settings
    kData = 2,       // bytes of the data stream
    kControl = 3,    // bytes of the control stream
    kGrant = 4,      // only the two counts
    kLast = 5,       // the sender's streams end here
    kTaken = 6,      // the answer to kLast: all before it has arrived
  };
  Kind kind = Kind::kGrant;
  std::uint32_t payload_bytes = 0;
  std::array<std::uint32_t, kLanes> used{};
};

// Writes the header into the first bytes of `packet`.
void encode_packet_header(const PacketHeader& header,
                          std::span<std::byte, kPacketHeaderBytes> packet) noexcept;

// Nothing if `packet`, which may be longer than what was sent, is damaged or too short for its payload.
std::optional<PacketHeader> decode_packet_header(Bytes packet) noexcept;

// A condition that ppoll() can wait for: a descriptor that is readable, or writable, while the flag is set.
//
// Thread rule: set() by one thread at a time; the descriptor may be polled meanwhile.
class ReadyFlag {
 public:
  enum class Shown : std::uint8_t { kReadable, kWritable };

  // Starts as not ready (kReadable) or ready (kWritable). Without a descriptor: ok() is false, errno set.
  explicit ReadyFlag(Shown shown)
      : shown_(shown),
        ready_(shown == Shown::kWritable),
        fd_(GuardedFd::open([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {}

  bool ok() const noexcept { return static_cast<bool>(fd_); }
  int fd() const noexcept { return fd_.get(); }

  void set(bool ready) noexcept {
    if (ready == ready_) return;
    ready_ = ready;
    // An eventfd is readable while its count is above 0, and writable while it is below its maximum.
    const bool counting = shown_ == Shown::kReadable ? ready : !ready;
    std::uint64_t count = shown_ == Shown::kReadable ? 1 : UINT64_MAX - 1;
    if (counting) {
      (void)!::write(fd_.get(), &count, sizeof count);
    } else {
      (void)!::read(fd_.get(), &count, sizeof count);
    }
  }

 private:
  Shown shown_;
  bool ready_;
  GuardedFd fd_;
};

inline constexpr std::uint32_t kWindow = 4;
// The largest payload of a control packet, small so that its slots are: two of the longest control messages.
inline constexpr std::size_t kControlPayloadMax = 1088;
// How many packets with only counts can be in flight: two for each lane beyond what the peer has seen,
// doubled.
inline constexpr std::size_t kGrantSlots = 8;

// A peer's slots, each the memory of one packet in flight: the lanes' windows, then these.
inline constexpr std::size_t kFirstGrantSlot = kLanes * kWindow;
inline constexpr std::size_t kHandshakeSlot = kFirstGrantSlot + kGrantSlots;
inline constexpr std::size_t kLastSlot = kHandshakeSlot + 1;
inline constexpr std::size_t kTakenSlot = kLastSlot + 1;
inline constexpr std::size_t kSlots = kTakenSlot + 1;

// Rooms for packets from a peer: for unread ones of both lanes, and for all others that can be in flight.
inline constexpr std::size_t kRooms = 24;
static_assert(kRooms >= kLanes * kWindow + kGrantSlots + 3);

struct Arrived {
  std::size_t room = 0;
  std::size_t begin = 0;  // of the unread payload
  std::size_t end = 0;
};

struct LaneOut {
  std::uint32_t sent = 0;     // packets, modulo 2^32, as all counts here
  std::uint32_t granted = 0;  // how many of them the peer has consumed
  ReadyFlag writable{ReadyFlag::Shown::kWritable};

  bool has_place() const noexcept { return sent - granted < kWindow; }
};

struct LaneIn {
  std::array<Arrived, kWindow> arrived{};  // a ring
  std::uint32_t received = 0;
  std::uint32_t used = 0;
  std::uint32_t told = 0;  // the value of `used` that the peer knows
  bool ended = false;      // no more will arrive
  bool closed = false;     // no longer read
  ReadyFlag readable{ReadyFlag::Shown::kReadable};

  bool empty() const noexcept { return received == used; }
  bool full() const noexcept { return received - used == kWindow; }
  Arrived& front() noexcept { return arrived[used % kWindow]; }
};

struct PacketPeer {
  PacketPeer();
  PacketPeer(const PacketPeer&) = delete;
  PacketPeer& operator=(const PacketPeer&) = delete;

  bool ok() const noexcept;  // all descriptors could be opened
  LaneOut& out(Lane lane) noexcept { return lanes_out[static_cast<std::size_t>(lane)]; }
  LaneIn& in(Lane lane) noexcept { return lanes_in[static_cast<std::size_t>(lane)]; }
  std::span<std::byte> slot(std::size_t index) noexcept;
  std::span<std::byte> room(std::size_t index) noexcept {
    return {rooms.get() + index * kPacketBytes, kPacketBytes};
  }

  // Takes over the header's counts for this side's windows. False: they exceed what was sent.
  bool take_grants(const PacketHeader& header) noexcept;
  // Whether the peer needs a grant, even if there is nothing else to send.
  bool owes_grants() const noexcept;
  // Nothing more will be received or sent.
  void end_lanes() noexcept;

  // Whether the peer has received everything, or is leaving and reads no more.
  bool needs_nothing() const noexcept { return last_received || last_taken; }
  // Whether nothing is in flight any more, in either direction.
  bool drained() const noexcept { return last_received && last_taken; }

  std::array<LaneOut, kLanes> lanes_out;
  std::array<LaneIn, kLanes> lanes_in;
  // Uninitialized, so that unused memory is never taken from the system.
  std::unique_ptr<std::byte[]> slots;
  std::unique_ptr<std::byte[]> rooms;
  std::vector<std::size_t> free_rooms;  // the last used one first: it's still in the cache
  std::array<bool, kSlots> slot_used{};
  std::size_t grants_sent = 0;

  std::optional<Arrived> handshake;  // kept until it has been checked
  bool gone = false;                 // its connection is broken
  int error = 0;                     // why, as an errno, or 0
  bool last_received = false;        // it sends nothing more
  bool last_taken = false;           // it has received everything
};

}  // namespace deltawire
