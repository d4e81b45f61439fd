// One rank's end of a mesh of packets: turns the two byte streams to each peer into packets for a Fabric,
// and back.
//
// Thread rule: any thread; one lock guards everything, and no thread waits while it holds the lock.
#pragma once

#include <condition_variable>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sys/uio.h>

#include "base/mutex.h"
#include "deltawire/connect.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/packet_peer.h"
#include "transport/links/link.h"
#include "transport/mesh/peer.h"

namespace deltawire {

class PacketPort final : public LinkHost {
 public:
  // Memory for one packet from a peer.
  struct Room {
    std::size_t index = 0;
    MutBytes bytes;  // kPacketBytes; empty: none is free
  };

  // Errors: kSystem (no descriptors or threads).
  static Result<std::unique_ptr<PacketPort>> open(int rank, int world_size, std::unique_ptr<Fabric> fabric);
  // Waits, for at most about two seconds, until the peers have received everything, and ends the fabric.
  ~PacketPort() override;
  PacketPort(const PacketPort&) = delete;
  PacketPort& operator=(const PacketPort&) = delete;

  // Exchanges settings and epochs with every peer. Errors: kTimeout (names the missing ranks), kMismatch,
  // kPeerLost.
  Status greet(const std::string& settings, std::uint32_t epoch, Deadline deadline);

  // The links to every peer, by rank. They must end before the port.
  std::vector<PeerLinks> make_links();

  // Called by links.
  IoResult send(int peer, Lane lane, std::span<const iovec> pieces) noexcept;
  IoResult recv(int peer, Lane lane, MutBytes into) noexcept;
  int readable_fd(int peer, Lane lane) noexcept { return fixed(peer).in(lane).readable.fd(); }
  int writable_fd(int peer, Lane lane) noexcept { return fixed(peer).out(lane).writable.fd(); }
  void close(int peer, Lane lane) noexcept;

  // Called by the fabric. The memory of slots and rooms does not move until the port's end.
  std::span<std::byte> slot(int peer, std::size_t index) noexcept { return fixed(peer).slot(index); }
  std::span<std::byte> room(int peer, std::size_t index) noexcept { return fixed(peer).room(index); }
  // Rooms of a peer are filled in the order of its packets.
  Room take_room(int peer) noexcept;
  void arrived(int peer, const Room& room, std::size_t bytes) noexcept;
  // The connection to `peer` is broken; `error` is an errno, or 0 if there is none.
  void lost(int peer, int error) noexcept;

 private:
  using Kind = PacketHeader::Kind;

  PacketPort(int rank, int world_size, std::unique_ptr<Fabric> fabric);

  PacketPeer& at(int peer) noexcept DELTAWIRE_REQUIRES(mutex_) { return fixed(peer); }
  // For what never changes: descriptors, and where memory lies.
  PacketPeer& fixed(int peer) noexcept DELTAWIRE_UNCHECKED_LOCKS {
    return *peers_[static_cast<std::size_t>(peer)];
  }
  template <class Condition>
  bool all_peers(Condition condition) DELTAWIRE_REQUIRES(mutex_) {
    for (const auto& peer : peers_) {
      if (peer && !condition(*peer)) return false;
    }
    return true;
  }
  Status check_handshake(int peer, const std::string& settings, std::uint32_t epoch)
      DELTAWIRE_REQUIRES(mutex_);
  Error missing_handshakes(std::chrono::milliseconds waited) DELTAWIRE_REQUIRES(mutex_);
  std::span<std::byte> claim_slot(int peer, std::size_t slot) noexcept DELTAWIRE_REQUIRES(mutex_);
  void send_notice(int peer, std::size_t slot, Kind kind) noexcept DELTAWIRE_REQUIRES(mutex_);
  void send_packet(int peer, std::size_t slot, Kind kind, std::size_t payload_bytes) noexcept
      DELTAWIRE_REQUIRES(mutex_);
  void send_grants(int peer) noexcept DELTAWIRE_REQUIRES(mutex_);
  void accept(int peer, const PacketHeader& header, const Room& room) noexcept DELTAWIRE_REQUIRES(mutex_);
  void accept_stream(int peer, Lane lane, const PacketHeader& header, const Room& room) noexcept
      DELTAWIRE_REQUIRES(mutex_);
  void use_front(int peer, Lane lane) noexcept DELTAWIRE_REQUIRES(mutex_);
  void mark_lost(int peer, int error) noexcept DELTAWIRE_REQUIRES(mutex_);

  const int rank_;
  Mutex mutex_;
  std::condition_variable changed_;  // a handshake, an answer or a loss came in
  std::vector<std::unique_ptr<PacketPeer>> peers_ DELTAWIRE_GUARDED_BY(mutex_);
  std::unique_ptr<Fabric> fabric_;
  bool started_ = false;
};

}  // namespace deltawire
