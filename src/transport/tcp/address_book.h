// How ranks that only know rank 0's address learn all the others (MeshOptions::rendezvous): after the
// handshakes with rank 0 on both streams, each tells it on the data stream where it listens; once rank 0
// knows all addresses, it sends them to each. The RollCall and the mesh's messages follow on the same stream.
// Bytes:
//
//   rank to rank 0    its address             64 bytes
//   rank 0 to rank    all addresses in order  64 bytes times the world size; rank 0's own are zeros
//
// An address:
//    0  u16  port, not 0; little-endian
//    2  u8   bytes of the host, 1 to 61
//    3       the host, a numeric address; then zeros
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <poll.h>

#include "deltawire/connect.h"
#include "transport/mesh/make_mesh.h"

namespace deltawire {

inline constexpr std::size_t kAddressBytes = 64;
using AddressSlot = std::array<std::byte, kAddressBytes>;

// kInvalidArgument: not an address that others can dial, e.g. that of a rank which listens on all addresses.
Result<AddressSlot> encode_address(const Endpoint& endpoint);
// Decodes bytes from another rank. kCorrupt: anything that encode_address doesn't write.
Result<Endpoint> decode_address(std::span<const std::byte, kAddressBytes> slot);

// Thread rule: one thread.
class AddressBook {
 public:
  // `own`: where this rank listens; rank 0 doesn't send its own.
  AddressBook(int rank, int world_size, const AddressSlot& own);

  // Sends and receives what is possible now on the data streams, some of which may still be missing, and
  // reads no byte beyond the addresses. `streams`: PeerTable::data_streams. Errors: kCorrupt, naming the
  // sender; kPeerLost: a rank that has connected again listens at another address than the others were told.
  Status advance(const std::vector<PeerSockets>& sockets, const std::vector<std::uint32_t>& streams);

  // Whether this rank has received, or as rank 0 sent, all addresses.
  bool is_complete() const noexcept { return complete_; }

  // Whether the addresses are fixed: rank 0 knows all and sends them, another rank has received them. Before
  // that a rank may still leave and be replaced by another process.
  bool is_out() const noexcept { return is_out_; }

  // A rank from which this one still waits for addresses. REQUIRES: !is_complete().
  int silent_rank() const noexcept;

  // All ranks' endpoints, except rank 0's, which is empty. REQUIRES: is_out().
  const std::vector<Endpoint>& endpoints() const noexcept { return endpoints_; }

  void add_interests(const std::vector<PeerSockets>& sockets, std::vector<pollfd>& polls) const;

 private:
  // What is sent and received on one data stream.
  struct Talk {
    const Connection* line = nullptr;
    std::uint32_t stream = 0;      // its number in PeerTable::data_streams
    std::vector<std::byte> heard;  // has its final size from the start
    std::size_t heard_bytes = 0;
    std::size_t said_bytes = 0;

    bool has_heard() const noexcept { return heard_bytes == heard.size(); }
  };

  void restart(Talk& talk, std::uint32_t stream);
  static void hear(Talk& talk);
  static void say(Talk& talk, Bytes all);
  Status learn(int rank, Bytes slot);
  Status learn_all();
  Status check_reachable() const;
  Status advance_host();
  Status advance_member();

  int rank_;
  AddressSlot own_;
  std::vector<Talk> talks_;          // by rank; ranks other than 0 only talk to rank 0
  std::vector<std::byte> answer_;    // what rank 0 sends, once it knows all addresses
  std::vector<Endpoint> endpoints_;  // by rank
  bool is_out_ = false;
  bool complete_ = false;
};

}  // namespace deltawire
