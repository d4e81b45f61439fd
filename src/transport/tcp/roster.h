// Which ranks have been met while a mesh connects, and whether they belong to it.
#pragma once

#include <string>
#include <vector>

#include "deltawire/connect.h"
#include "transport/mesh/make_mesh.h"
#include "transport/tcp/hello.h"

namespace deltawire {

class Roster {
 public:
  explicit Roster(const MeshOptions& options);

  // What this rank says of itself on a connection for `stream`.
  std::vector<std::byte> own_hello(Hello::Stream stream) const;

  // Whether the sender of `hello` belongs to this mesh; kMismatch names it, and what both sides say.
  Status check(const Hello& hello) const;

  // Keeps the connection to the sender of `hello`, which check() has passed. kMismatch: the rank has such
  // a connection already.
  Status add(const Hello& hello, GuardedFd socket);

  bool has(int rank, Hello::Stream stream) const noexcept;
  bool is_complete() const noexcept { return missing_.empty(); }
  // Ranks not yet met on both streams, ascending.
  const std::vector<int>& missing() const noexcept { return missing_; }

  // All connections, by rank.
  const std::vector<PeerSockets>& sockets() const noexcept { return sockets_; }
  std::vector<PeerSockets> take_sockets() { return std::move(sockets_); }

 private:
  Hello own_;
  Token token_;
  std::vector<PeerSockets> sockets_;
  std::vector<int> missing_;
};

// Sets what every connection of a mesh needs: no Nagle delay, and dead machines are noticed.
void configure_connection(int fd, Hello::Stream stream) noexcept;

}  // namespace deltawire
