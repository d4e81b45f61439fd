// How ranks that know rank 0's address alone learn all others' (MeshOptions::rendezvous): each has shaken
// hands with rank 0 on both streams, tells it on the data stream where it listens, and rank 0, once it knows
// all, sends them all to each. Then the RollCall and messages of the mesh follow on the same stream. Bytes:
//
//   rank to rank 0    its address             64 bytes
//   rank 0 to rank    all addresses in order  64 bytes times the world size; rank 0's own are zeros
//
// An address:
//    0  u16  port, not 0; little-endian
//    2  u8   bytes of the host, 1 to 61
//    3       the host, a numeric address; zeros behind it
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <poll.h>

#include "deltawire/connect.h"
#include "transport/mesh/make_mesh.h"

namespace deltawire {

inline constexpr std::size_t kAddressBytes = 64;
using AddressSlot = std::array<std::byte, kAddressBytes>;

// kInvalidArgument: no address that others could dial, as that of a rank which listens on all of its own.
Result<AddressSlot> encode_address(const Endpoint& endpoint);
// Of bytes from another rank. kCorrupt: anything that encode_address doesn't write.
Result<Endpoint> decode_address(std::span<const std::byte, kAddressBytes> slot);

// Thread rule: one thread.
class AddressBook {
 public:
  // `own`: where this rank listens; rank 0's isn't told.
  AddressBook(int rank, int world_size, const AddressSlot& own);

  // Moves what the data streams, which may be absent still, take and give now, and no byte more. `streams`:
  // PeerTable::data_streams. Errors: kCorrupt, naming the rank that sent it; kPeerLost: a rank that came
  // again listens elsewhere than the others have been told.
  Status advance(const std::vector<PeerSockets>& sockets, const std::vector<std::uint32_t>& streams);

  // Whether this rank has done its part: has been told all, or has told all.
  bool is_complete() const noexcept { return complete_; }

  // Whether the addresses are out: rank 0 has them all and tells them, another has been told. Before, a rank
  // may still go and come again as another process.
  bool is_out() const noexcept { return is_out_; }

  // A rank that has not told this one all that it should. REQUIRES: !is_complete().
  int silent_rank() const noexcept;

  // All ranks' but rank 0's, which stays empty. REQUIRES: is_out().
  const std::vector<Endpoint>& endpoints() const noexcept { return endpoints_; }

  void add_interests(const std::vector<PeerSockets>& sockets, std::vector<pollfd>& polls) const;

 private:
  // One data stream: what is said on it and what is heard.
  struct Talk {
    int fd = -1;
    std::uint32_t stream = 0;      // its number in PeerTable::data_streams
    std::vector<std::byte> heard;  // as long as it is to become
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
  std::vector<Talk> talks_;          // by rank; of a member that with rank 0 alone
  std::vector<std::byte> answer_;    // rank 0's, once it knows all
  std::vector<Endpoint> endpoints_;  // by rank
  bool is_out_ = false;
  bool complete_ = false;
};

}  // namespace deltawire
