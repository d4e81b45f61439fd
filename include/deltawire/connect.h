// How ranks find each other: TCP meshes between processes, in-process meshes between threads, and what a
// link can be made to look like (a slow line, a broken line).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/result.h"
#include "deltawire/transport.h"

namespace deltawire {

// A token bucket for each direction of a rank, shared by all its peers, like a machine's network card.
struct LinkShape {
  double bytes_per_second = 12.5e6;   // 100 Mbit/s; must be > 0
  std::uint64_t burst_bytes = 16384;  // at most this much at once; 1 ... 16384
};

// A deliberate defect of the data stream from this rank to `peer`, for tests. Byte positions count data
// bytes sent to that peer, message headers included, the handshake not.
struct LinkFault {
  enum class Kind : std::uint8_t {
    kDelay,    // hold every byte back for `delay`, up to 8 MiB of them at once
    kCut,      // close the connection at `at_byte`
    kFlip,     // invert bit `at_byte` % 8 of the byte at `at_byte`
    kDrop,     // swallow everything from `at_byte` on
    kDribble,  // from `at_byte` on, one byte every `delay`
  };
  Kind kind = Kind::kDelay;
  int peer = 0;
  std::uint64_t at_byte = 0;
  std::chrono::milliseconds delay{0};
};

struct LinkOptions {
  std::optional<LinkShape> shape;
  std::vector<LinkFault> faults;
};

using Token = std::array<std::byte, 32>;

struct Endpoint {
  std::string host;  // numeric address, IPv4 or IPv6
  std::uint16_t port = 0;
};

// A bound, listening socket: made first, so that its endpoint can be told to the other ranks.
// Thread rule: use it from one thread.
class DELTAWIRE_API Listener {
 public:
  virtual ~Listener() = default;
  virtual Endpoint endpoint() const = 0;
};

// Listens on `host` (an address or name of this machine; IPv4 or IPv6) or, if `host` names a network
// interface ("eth0"), on that interface's first address. Port 0 takes a free one.
// Errors: kAddressInUse, kInvalidArgument (no such interface or address), kSystem.
DELTAWIRE_API Result<std::unique_ptr<Listener>> listen_tcp(const std::string& host, std::uint16_t port = 0);

// Ports first ... last, both included; {0, 0} is any free one.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

// The same on the first port of the range that is free: for ranks behind a firewall, which share one range on
// a machine. kAddressInUse, naming the range: none is.
DELTAWIRE_API Result<std::unique_ptr<Listener>> listen_tcp(const std::string& host, PortRange ports);

// Whether this process may open as many file descriptors (ulimit -n) as rank `rank` of a mesh of `world_size`
// needs, beyond those that are open now. kSystem, with the numbers and what to do. connect_tcp asks too.
DELTAWIRE_API Status check_descriptors(int rank, int world_size);

// The local address that packets to `host` leave from: the sane default for listen_tcp.
DELTAWIRE_API Result<std::string> local_address_towards(const std::string& host);

// The listener of a rank whose mesh has a rendezvous: rank 0's is there, another's on the address towards it
// and the first port of `ports` that is free. Errors: those of both.
DELTAWIRE_API Result<std::unique_ptr<Listener>> listen_for(const Endpoint& rendezvous, int rank,
                                                           PortRange ports = {});

struct MeshOptions {
  int rank = 0;
  int world_size = 1;
  std::vector<Endpoint> endpoints;  // of every rank, own included; TCP only
  // In the place of `endpoints`: where rank 0 listens, whose host may be a name. The others tell rank 0 where
  // they listen, and it tells all. local_address_towards(rendezvous->host) is what they listen on.
  std::optional<Endpoint> rendezvous;
  Token token{};            // equal on all ranks, never sent; who can't prove to know it is a
                            // stranger; TCP only. docs/security.md says what it is good for
  std::string settings;     // <= 1024 bytes, e.g. the reducer spec; another rank's other settings are
                            // kMismatch on both sides, naming the rank and both texts
  std::uint32_t epoch = 0;  // Transport::epoch; another rank's other epoch is kMismatch likewise
  std::chrono::milliseconds connect_timeout{60000};  // 1 ms to 24 h
  std::chrono::milliseconds arrival_timeout{0};      // Transport::set_arrival_timeout: in all, not beyond
  LinkOptions link;
};

// Connects a full mesh; every rank calls it once. Strangers (wrong token, silence, garbage) are refused
// and do not disturb the others. Sockets are closed in forked children, so that a child cannot hide the
// death of its parent. A rank that can't connect tells the others why, and takes up to 2 s longer for it.
// Errors: kTimeout (names the missing ranks), kMismatch, kUnauthorized, kPeerLost, kInvalidArgument, kSystem
// (no descriptors left, for one), each also where another rank found it.
DELTAWIRE_API Result<std::unique_ptr<Transport>> connect_tcp(std::unique_ptr<Listener> listener,
                                                             const MeshOptions& options);

// All ranks of an in-process mesh, for ranks as threads: the same engine over socket pairs.
DELTAWIRE_API Result<std::vector<std::unique_ptr<Transport>>> connect_inproc(
    int world_size, const std::vector<LinkOptions>& links = {}, std::uint32_t epoch = 0);

}  // namespace deltawire
