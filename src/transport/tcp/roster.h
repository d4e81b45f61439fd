// Which ranks have been met while a mesh connects, and whether they belong to it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "deltawire/connect.h"
#include "transport/mesh/make_mesh.h"
#include "transport/tcp/hello.h"

namespace deltawire {

class Roster {
 public:
  explicit Roster(const MeshOptions& options);

  int rank() const noexcept { return static_cast<int>(own_.rank); }
  int world_size() const noexcept { return static_cast<int>(own_.world_size); }
  const Token& token() const noexcept { return token_; }

  // What this rank says of itself: its settings or, once it has given up, why.
  Hello own_hello(Hello::Role role) const;

  // Whether the sender of `hello` belongs to this mesh: kMismatch names it, and what both sides say. A rank
  // that has given up: its error.
  Status check(const Hello& hello);

  // Keeps the connection to the sender of `hello`, which check() has passed, and fits its buffers to the way.
  // kMismatch: the rank has such a connection already; both processes will be told.
  Status add(const Hello& hello, GuardedFd socket);

  bool is_complete() const noexcept { return missing_.empty(); }
  // Ranks not yet met on both streams, ascending.
  const std::vector<int>& missing() const noexcept { return missing_; }

  // All connections, by rank.
  const std::vector<PeerSockets>& sockets() const noexcept { return sockets_; }
  std::vector<PeerSockets> take_sockets() { return std::move(sockets_); }

  // The last words of a rank that was met: why it gave up, if it said so before it hung up.
  std::optional<Error> last_words_of(int rank) const;

  // Tells the ranks that were met why this one gives up, and hangs up on them. From now on missing() are
  // the others that have not been told.
  void give_up(const Error& error);
  bool has_given_up() const noexcept { return own_.problem != 0; }
  // That rank knows, or is gone.
  void note_told(std::uint32_t rank);

 private:
  Status judge(const Hello& hello) const;
  Error problem_of(const Hello& hello, int sender) const;

  Hello own_;
  Token token_;
  std::vector<PeerSockets> sockets_;
  std::vector<int> missing_;
  std::vector<bool> is_told_;  // by rank: of this rank's failure
  std::optional<int> twice_;   // a rank that came as two processes
};

// Sets what every connection of a mesh needs: no Nagle delay, and dead machines are noticed.
void configure_connection(int fd, Hello::Stream stream) noexcept;

}  // namespace deltawire
