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

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <poll.h>

#include "base/errors.h"
#include "base/little_endian.h"
#include "deltawire/connect.h"
#include "transport/mesh/make_mesh.h"
#include "transport/tcp/address.h"

namespace deltawire {

inline constexpr std::size_t kAddressBytes = 64;
inline constexpr std::size_t kHostAt = 3;
inline constexpr std::size_t kHostMax = kAddressBytes - kHostAt;
using AddressSlot = std::array<std::byte, kAddressBytes>;

// kInvalidArgument: not an address that others can dial, e.g. that of a rank which listens on all addresses.
inline Result<AddressSlot> encode_address(const Endpoint& endpoint) {
  ASSIGN_OR_RETURN(const SocketAddress address, SocketAddress::from_numeric(endpoint.host, endpoint.port));
  const bool cut = endpoint.host.find('\0') != std::string::npos;  // the resolver would not see the rest
  if (endpoint.port == 0 || address.is_unspecified() || endpoint.host.size() > kHostMax || cut) {
    return invalid(to_string(endpoint) +
                   " is not an address that other ranks can connect to; listen on one of "
                   "this machine's (\"ip addr\" lists them)");
  }
  AddressSlot slot{};
  store_le(slot.data(), endpoint.port);
  slot[2] = static_cast<std::byte>(endpoint.host.size());
  std::memcpy(slot.data() + kHostAt, endpoint.host.data(), endpoint.host.size());
  return slot;
}

// Decodes bytes from another rank. kCorrupt: anything that encode_address doesn't write.
inline Result<Endpoint> decode_address(std::span<const std::byte, kAddressBytes> slot) {
  Endpoint endpoint;
  endpoint.port = load_le<std::uint16_t>(slot.data());
  const auto length = std::to_integer<std::size_t>(slot[2]);
  endpoint.host.assign(reinterpret_cast<const char*>(slot.data() + kHostAt), std::min(length, kHostMax));
  const Result<AddressSlot> again = encode_address(endpoint);
  if (!again || !std::ranges::equal(*again, slot)) {
    return corrupt(
        "a rank sent something other than its address; do all ranks run the same version of "
        "deltawire, and were all started with the rendezvous?");
  }
  return endpoint;
}

// Thread rule: one thread.
class AddressBook {
 public:
  // `own`: where this rank listens; rank 0 doesn't send its own.
  AddressBook(int rank, int world_size, const AddressSlot& own)
      : rank_(rank),
        own_(own),
        talks_(static_cast<std::size_t>(rank == 0 ? world_size : 1)),
        endpoints_(static_cast<std::size_t>(world_size)),
        is_out_(world_size == 1),
        complete_(world_size == 1) {}

  // Sends and receives what is possible now on the data streams, some of which may still be missing, and
  // reads no byte beyond the addresses. `streams`: PeerTable::data_streams. Errors: kCorrupt, naming the
  // sender; kPeerLost: a rank that has connected again listens at another address than the others were told.
  Status advance(const std::vector<PeerSockets>& sockets, const std::vector<std::uint32_t>& streams) {
    for (std::size_t i = 0; i < talks_.size(); ++i) {
      if (streams[i] != talks_[i].stream) restart(talks_[i], streams[i]);
      talks_[i].line = sockets[i].data ? &sockets[i].data : nullptr;
    }
    if (complete_) return {};
    return rank_ == 0 ? advance_host() : advance_member();
  }

  // Whether this rank has received, or as rank 0 sent, all addresses.
  bool is_complete() const noexcept { return complete_; }

  // Whether the addresses are fixed: rank 0 knows all and sends them, another rank has received them. Before
  // that a rank may still leave and be replaced by another process.
  bool is_out() const noexcept { return is_out_; }

  // A rank from which this one still waits for addresses. REQUIRES: !is_complete().
  int silent_rank() const noexcept {
    for (std::size_t rank = 1; rank < talks_.size(); ++rank) {
      if (talks_[rank].line == nullptr || !talks_[rank].has_heard()) return static_cast<int>(rank);
    }
    return 0;
  }

  // All ranks' endpoints, except rank 0's, which is empty. REQUIRES: is_out().
  const std::vector<Endpoint>& endpoints() const noexcept { return endpoints_; }

  void add_interests(const std::vector<PeerSockets>& sockets, std::vector<pollfd>& polls) const {
    if (complete_) return;
    for (std::size_t i = 0; i < talks_.size(); ++i) {
      const int fd = sockets[i].data.get();
      if (fd < 0) continue;
      const Talk& talk = talks_[i];
      const std::size_t due = rank_ == 0 ? answer_.size() : own_.size();
      const bool is_new = talk.line == nullptr || talk.line->get() != fd;
      const bool speaks = is_new || talk.said_bytes < due;
      const bool hears = is_new || !talk.has_heard();
      polls.push_back({fd, static_cast<short>((speaks ? POLLOUT : 0) | (hears ? POLLIN : 0)), 0});
    }
  }

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

  // A rank that has connected again, e.g. after a broken connection, starts over.
  void restart(Talk& talk, std::uint32_t stream) {
    talk = Talk{.stream = stream, .heard = {}};
    talk.heard.resize(rank_ == 0 ? kAddressBytes : kAddressBytes * endpoints_.size());
    answer_.clear();
    complete_ = false;
  }

  static void hear(Talk& talk) {
    const MutBytes room = MutBytes(talk.heard).subspan(talk.heard_bytes);
    if (room.empty()) return;
    // The bootstrap handles connections that have ended.
    talk.heard_bytes += talk.line->recv(room).bytes;
  }

  static void say(Talk& talk, Bytes all) {
    const Bytes rest = all.subspan(talk.said_bytes);
    if (rest.empty()) return;
    talk.said_bytes += talk.line->send(rest).bytes;
  }

  Status learn(int rank, Bytes slot) {
    const auto endpoint = decode_address(slot.first<kAddressBytes>());
    if (!endpoint) {
      const int sender = rank_ == 0 ? rank : 0;
      return fail(endpoint.error().code,
                  "rank " + std::to_string(sender) + " sent rank " + std::to_string(rank_) +
                      " an address that can't be read: " + endpoint.error().message,
                  sender);
    }
    Endpoint& known = endpoints_[static_cast<std::size_t>(rank)];
    if (is_out_ && (known.host != endpoint->host || known.port != endpoint->port)) {
      return fail(ErrorCode::kPeerLost,
                  "rank " + std::to_string(rank) + " was started again, at " + to_string(*endpoint) +
                      ", after the others had been told that it listens at " + to_string(known) +
                      "; start all ranks again",
                  rank);
    }
    known = *endpoint;
    return {};
  }

  // Decodes the addresses that the ranks have sent to rank 0.
  Status learn_all() {
    answer_.assign(kAddressBytes, std::byte{0});
    for (std::size_t rank = 1; rank < talks_.size(); ++rank) {
      RETURN_IF_ERROR(learn(static_cast<int>(rank), talks_[rank].heard));
      answer_.insert(answer_.end(), talks_[rank].heard.begin(), talks_[rank].heard.end());
    }
    return check_reachable();
  }

  // A rank that listens on loopback can only be reached by ranks on its own machine.
  Status check_reachable() const {
    std::optional<SocketAddress> far;
    std::size_t far_rank = 0;
    for (std::size_t rank = 1; rank < talks_.size() && !far; ++rank) {
      const Result<SocketAddress> own = SocketAddress::of_socket(talks_[rank].line->get());
      const Result<SocketAddress> other = SocketAddress::of_peer(talks_[rank].line->get());
      if (!own || !other || !other->is_internet() || other->is_loopback() || own->has_host_of(*other))
        continue;
      far = *other;
      far_rank = rank;
    }
    for (std::size_t rank = 1; rank < talks_.size() && far; ++rank) {
      const Endpoint& endpoint = endpoints_[rank];
      const auto address = SocketAddress::from_numeric(endpoint.host, endpoint.port);
      if (!address || !address->is_loopback()) continue;
      return fail(ErrorCode::kInvalidArgument,
                  "rank " + std::to_string(rank) + " listens on " + endpoint.host + ", which rank " +
                      std::to_string(far_rank) + " at " + far->endpoint().host +
                      " can't reach; let it listen on an address of its machine that the others can dial",
                  static_cast<int>(rank));
    }
    return {};
  }

  Status advance_host() {
    bool all_heard = true;
    for (std::size_t rank = 1; rank < talks_.size(); ++rank) {
      Talk& talk = talks_[rank];
      if (talk.line != nullptr) hear(talk);
      all_heard = all_heard && talk.line != nullptr && talk.has_heard();
    }
    if (!all_heard) return {};
    if (answer_.empty()) {
      RETURN_IF_ERROR(learn_all());
    }
    is_out_ = true;
    complete_ = true;
    for (std::size_t rank = 1; rank < talks_.size(); ++rank) {
      say(talks_[rank], answer_);
      complete_ = complete_ && talks_[rank].said_bytes == answer_.size();
    }
    return {};
  }

  Status advance_member() {
    Talk& talk = talks_.front();
    if (talk.line == nullptr) return {};
    say(talk, own_);
    hear(talk);
    if (!talk.has_heard()) return {};
    for (std::size_t rank = 1; rank < endpoints_.size(); ++rank) {
      const Bytes slot = Bytes(talk.heard).subspan(kAddressBytes * rank, kAddressBytes);
      RETURN_IF_ERROR(learn(static_cast<int>(rank), slot));
    }
    is_out_ = true;
    complete_ = true;
    return {};
  }

  int rank_;
  AddressSlot own_;
  std::vector<Talk> talks_;          // by rank; ranks other than 0 only talk to rank 0
  std::vector<std::byte> answer_;    // what rank 0 sends, once it knows all addresses
  std::vector<Endpoint> endpoints_;  // by rank
  bool is_out_ = false;
  bool complete_ = false;
};

}  // namespace deltawire
