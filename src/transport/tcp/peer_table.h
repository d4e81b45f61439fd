// The ranks that are connected so far while a mesh connects; checks whether they belong to it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deltawire/connect.h"
#include "transport/mesh/control_message.h"
#include "transport/mesh/make_mesh.h"
#include "transport/tcp/handshake.h"

namespace deltawire {

class PeerTable {
 public:
  explicit PeerTable(const MeshOptions& options);

  int rank() const noexcept { return static_cast<int>(own_.rank); }
  int world_size() const noexcept { return static_cast<int>(own_.world_size); }
  std::string name(int rank) const { return names_.of(rank); }
  const Token& token() const noexcept { return token_; }

  // This rank's claims: its settings or, once it has given up, why.
  Claims own_claims(Claims::Role role) const;

  // Whether the sender of `claims` belongs to this mesh: kMismatch names it, and what differs. If it has
  // given up, its error. Its settings are kept for compare_settings().
  Status check(const Claims& claims);

  // Whether all known settings are equal. kMismatch names a rank of the smallest group that differs from the
  // majority; of two equal groups, the one without the lowest rank. So all ranks that know all settings
  // report the same.
  Status compare_settings() const;

  // Keeps the connection to the sender of `claims`, which check() has accepted, and sets its buffer sizes. It
  // replaces a connection that has ended, or one of the same process, which may have seen it end first.
  // kMismatch: another process with that rank is connected; both will be told.
  Status add(const Claims& claims, Connection socket);

  // That connection has ended; the rank is missing until it connects again. With the data stream all further
  // ones are dropped.
  void drop(int rank, Claims::Stream stream);

  bool is_complete() const noexcept { return missing_.empty(); }
  // Ranks that are not connected on both streams, ascending.
  const std::vector<int>& missing() const noexcept { return missing_; }

  // All connections, by rank.
  const std::vector<PeerSockets>& sockets() const noexcept { return sockets_; }
  // How many data streams each rank has had, by rank: a new number means a new stream.
  const std::vector<std::uint32_t>& data_streams() const noexcept { return data_streams_; }
  std::vector<PeerSockets> take_sockets() { return std::move(sockets_); }

  // Why a rank that was connected gave up, if it said so before it hung up.
  std::optional<Error> exit_reason_of(int rank) const;
  // Whether a rank that was connected has said goodbye: it was connected to all, and has finished its work.
  bool has_finished(int rank) const {
    return std::ranges::any_of(heard_from(rank), [](const ControlMessage& message) {
      return std::holds_alternative<Goodbye>(message);
    });
  }

  // Tells the connected ranks why this one gives up, and hangs up on them. From now on missing() are the
  // others that have not been told.
  void give_up(const Error& error);
  bool has_given_up() const noexcept { return own_.problem != 0; }
  // That rank knows why this one gave up, or is gone.
  void note_told(std::uint32_t rank);

 private:
  // Of a rank that there may not be.
  std::string claimed_name(std::uint32_t rank) const {
    return rank < own_.world_size ? name(static_cast<int>(rank)) : "rank " + std::to_string(rank);
  }
  Status judge(const Claims& claims) const;
  std::vector<ControlMessage> heard_from(int rank) const;
  Error problem_of(const Claims& claims, int sender) const;
  bool is_another_process(const Claims& claims) const noexcept;

  const RankNames names_;
  Claims own_;
  Token token_;
  std::vector<PeerSockets> sockets_;
  std::vector<std::uint32_t> data_streams_;
  std::vector<std::uint64_t> lives_;                  // by rank: of the process that is connected
  std::vector<std::optional<std::string>> settings_;  // by rank, including this one; as far as they are known
  std::vector<int> missing_;
  std::vector<bool> is_told_;  // by rank: of this rank's failure
  std::optional<int> twice_;   // a rank that two processes claim to be
};

// Whether the other end has hung up or is dead.
bool has_ended(int fd) noexcept;

// Sets what every connection of a mesh needs: no Nagle delay, and dead machines are noticed.
void configure_connection(int fd, Claims::Stream stream) noexcept;

}  // namespace deltawire
