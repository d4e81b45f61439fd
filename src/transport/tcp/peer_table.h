// Which ranks have been met while a mesh connects, and whether they belong to it.
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
  const Token& token() const noexcept { return token_; }

  // What this rank says of itself: its settings or, once it has given up, why.
  Claims own_claims(Claims::Role role) const;

  // Whether the sender of `claims` belongs to this mesh: kMismatch names it, and what both sides say. A rank
  // that has given up: its error. Its settings are kept for compare_settings().
  Status check(const Claims& claims);

  // Whether all ranks that were heard have the same settings. kMismatch names one of the fewest who have
  // theirs; of as many on both sides, not the lowest rank's. So all ranks that have heard all say the same.
  Status compare_settings() const;

  // Keeps the connection to the sender of `claims`, which check() has passed, and fits its buffers to the
  // way. It takes the place of one that has ended, and of one of the same process, which may have seen it end
  // first. kMismatch: another process of that rank is connected; both will be told.
  Status add(const Claims& claims, GuardedFd socket);

  // That connection has ended; the rank is missing until it comes again.
  void drop(int rank, Claims::Stream stream);

  bool is_complete() const noexcept { return missing_.empty(); }
  // Ranks not yet met on both streams, ascending.
  const std::vector<int>& missing() const noexcept { return missing_; }

  // All connections, by rank.
  const std::vector<PeerSockets>& sockets() const noexcept { return sockets_; }
  // How many data streams each rank has had, by rank: another number, another stream.
  const std::vector<std::uint32_t>& data_streams() const noexcept { return data_streams_; }
  std::vector<PeerSockets> take_sockets() { return std::move(sockets_); }

  // The last words of a rank that was met: why it gave up, if it said so before it hung up.
  std::optional<Error> last_words_of(int rank) const;
  // Whether a rank that was met has said goodbye: it has met all, has done its work and misses nothing.
  bool has_finished(int rank) const;

  // Tells the ranks that were met why this one gives up, and hangs up on them. From now on missing() are
  // the others that have not been told.
  void give_up(const Error& error);
  bool has_given_up() const noexcept { return own_.problem != 0; }
  // That rank knows, or is gone.
  void note_told(std::uint32_t rank);

 private:
  Status judge(const Claims& claims) const;
  std::vector<ControlMessage> heard_from(int rank) const;
  Error problem_of(const Claims& claims, int sender) const;
  bool is_another_process(const Claims& claims) const noexcept;

  Claims own_;
  Token token_;
  std::vector<PeerSockets> sockets_;
  std::vector<std::uint32_t> data_streams_;
  std::vector<std::uint64_t> lives_;                  // by rank: of the process that is connected
  std::vector<std::optional<std::string>> settings_;  // by rank, own included; as far as they were heard
  std::vector<int> missing_;
  std::vector<bool> is_told_;  // by rank: of this rank's failure
  std::optional<int> twice_;   // a rank that came as two processes
};

// Whether the other end has hung up, or nobody is there any more.
bool has_ended(int fd) noexcept;

// Sets what every connection of a mesh needs: no Nagle delay, and dead machines are noticed.
void configure_connection(int fd, Claims::Stream stream) noexcept;

}  // namespace deltawire
