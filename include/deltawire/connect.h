// How ranks connect: TCP meshes between processes, in-process meshes between threads, and emulated links
// (slow ones, broken ones).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/rank_names.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

class Link;  // the library's own

// A token bucket for each direction of a rank, shared by all its peers, like a machine's network card.
struct LinkShape {
  double bytes_per_second = 12.5e6;   // 100 Mbit/s; must be > 0
  std::uint64_t burst_bytes = 16384;  // at most this much at once; 1 ... 16384
};

// Moves the bytes of messages in place of the connections between ranks, which then say only how many follow:
// for networks that another library of the job owns. To every send of a rank belongs one receive of the same
// length on its peer, in the same order.
//
// Thread rule: for each peer one thread sends and one receives, all at the same time.
class DELTAWIRE_API Carrier {
 public:
  virtual ~Carrier() = default;

  // Returns when `bytes` may change. False: it can't send to this peer any more, which ends the mesh. While a
  // call lasts, only messages to this peer wait, and their deadlines are the mesh's; its end waits for a call
  // for two seconds, and then leaves it behind.
  virtual bool send(int peer, Bytes bytes) noexcept = 0;

  // Fills `into`, whose bytes the peer has or will have sent. Otherwise as send.
  virtual bool receive(int peer, MutBytes into) noexcept = 0;
};

struct LinkOptions {
  std::optional<LinkShape> shape;
  // What the data stream to a peer becomes: for the library's own tests, which break it.
  std::function<std::unique_ptr<Link>(int peer, std::unique_ptr<Link>)> wrap{};
  // On all ranks or on none; empty: the connections move all bytes. What ranks vote and say of each other
  // stays on connections. It outlives the mesh where one of its calls does.
  std::shared_ptr<Carrier> carrier{};
};

using Token = std::array<std::byte, 32>;

// A secret without the line break that `openssl rand -hex 32 > file` puts behind it. One of 32 bytes is
// taken as it is.
DELTAWIRE_API Bytes trim_secret(Bytes secret) noexcept;

// The token of a secret, which is text or bytes of any length; the same in every language. It is trimmed;
// then one of 32 bytes is the token itself, others are hashed. kInvalidArgument: fewer than 16 bytes.
DELTAWIRE_API Result<Token> token_of(Bytes secret);

// Whether the connections between ranks are encrypted: TLS 1.3 with a key from the token and forward secrecy.
enum class Encryption : std::uint8_t {
  kAuto = 0,  // those that leave the machine: neither loopback, nor from an address to itself
  kRequired = 1,
  kOff = 2,
};

// "auto", "required" or "off". kInvalidArgument: anything else.
DELTAWIRE_API Result<Encryption> parse_encryption(std::string_view text);

struct Endpoint {
  std::string host;  // numeric address, IPv4 or IPv6, or a name, which is looked up before each attempt
  std::uint16_t port = 0;

  bool operator==(const Endpoint&) const = default;
};

// Parses "10.0.0.1:29600", "node1:29600" or "[fd00::1]:29600". kInvalidArgument: anything else, and port 0.
DELTAWIRE_API Result<Endpoint> parse_endpoint(std::string_view text);
// The text that parse_endpoint reads.
DELTAWIRE_API std::string to_string(const Endpoint& endpoint);

// A bound, listening socket: made first, so that its endpoint can be told to the other ranks.
// Thread rule: use it from one thread.
class DELTAWIRE_API Listener {
 public:
  virtual ~Listener() = default;
  virtual Endpoint endpoint() const = 0;
};

// Listens on `host` (an address or name of this machine; IPv4 or IPv6) or, if `host` names a network
// interface ("eth0"), on that interface's first address. Port 0 takes a free one. Ranks of the same user on
// this machine reach it through a Unix socket, which costs less than TCP; with DELTAWIRE_LOCAL_SOCKETS=off in
// its environment they use TCP, too.
// Errors: kAddressInUse, kInvalidArgument (no such interface or address), kSystem.
DELTAWIRE_API Result<std::unique_ptr<Listener>> listen_tcp(const std::string& host, std::uint16_t port = 0);

// Ports first ... last, both included; {0, 0} is any free one.
struct PortRange {
  std::uint16_t first = 0;
  std::uint16_t last = 0;
};

// "29600-29699", or "29600" alone; "" and "0" are any free one. kInvalidArgument: anything else.
DELTAWIRE_API Result<PortRange> parse_ports(std::string_view text);

// The same on the first free port of the range: for ranks behind a firewall, which share one range on a
// machine. kAddressInUse, naming the range: none is free.
DELTAWIRE_API Result<std::unique_ptr<Listener>> listen_tcp(const std::string& host, PortRange ports);

// Checks that this process may open as many file descriptors (ulimit -n) as rank `rank` of a mesh of
// `world_size` needs, beyond those that are open now. If not: kSystem, with the numbers and what to do.
// connect_tcp checks it, too.
DELTAWIRE_API Status check_descriptors(int rank, int world_size);

// Where a rank listens whom nobody tells: on what DELTAWIRE_INTERFACE in its environment names (an address,
// name or network interface of this machine), otherwise on the local address that packets to `host` leave
// from.
DELTAWIRE_API Result<std::string> local_address_towards(const std::string& host);

// The listener of a rank whose mesh has a rendezvous. Rank 0 listens on the rendezvous; another rank on the
// local address towards it and the first free port of `ports`. `interface`, an address, name or network
// interface of this machine, replaces that address and, on rank 0, the rendezvous' host, but not its port;
// if it is empty, DELTAWIRE_INTERFACE does, where the environment has it.
// The rendezvous' name is looked up again for `patience`, because some schedulers make it after the ranks.
// `interrupted`: as MeshOptions::interrupted.
// Errors: those of local_address_towards and listen_tcp; kAborted (interrupted).
DELTAWIRE_API Result<std::unique_ptr<Listener>> listen_for(
    const Endpoint& rendezvous, int rank, PortRange ports = {}, const std::string& interface = {},
    std::chrono::milliseconds patience = std::chrono::seconds(60),
    const std::function<bool()>& interrupted = {});

struct MeshOptions {
  int rank = 0;
  int world_size = 1;
  std::vector<Endpoint> endpoints;  // of every rank, this one included; TCP only
  // Instead of `endpoints`: where rank 0 listens. The others tell rank 0 where they
  // listen, and it tells all. listen_for makes their listeners. Until all ranks have connected, a rank that
  // dies may be started again, as another process.
  std::optional<Endpoint> rendezvous;
  Token token{};  // equal on all ranks, never sent; a peer that can't prove to know it is
                  // refused; TCP only. docs/reference/security.md says what it protects from
  // TCP only, equal on all ranks: if not, kMismatch names two of them, and both settings. kRequired refuses a
  // token of zeros (kInvalidArgument), which anybody could guess.
  Encryption encryption = Encryption::kAuto;
  // <= 1024 bytes: what must be equal on all ranks, e.g. agreed_settings (deltawire/reducer.h). Compared once
  // all ranks have connected: kMismatch on every rank, with the words that differ. The suspect is a rank of
  // the smallest group that differs from the majority; of two equal groups, the one without the lowest rank.
  std::string settings;
  std::uint32_t epoch = 0;  // Transport::epoch; if another rank's differs: kMismatch likewise
  RankNames names;          // kInvalidArgument unless there is a number for each rank, or none
  std::chrono::milliseconds connect_timeout{60000};  // 1 ms to 24 h
  std::chrono::milliseconds arrival_timeout{0};      // Transport::set_arrival_timeout: the total, not extra
  // Called a few times a second while the ranks connect, on the calling thread; true ends it with kAborted.
  std::function<bool()> interrupted;
  // Whether messages to ranks of the same user on this machine go through shared memory, where Unix sockets
  // connect them in the clear; DELTAWIRE_SHARED_MEMORY=off in the environment turns it off, too. Both ranks
  // must want it, and the system allow it; otherwise the sockets carry the messages. TCP only.
  bool shared_memory = true;
  // How many TCP streams carry the messages of a pair of ranks, 1 to 8: where a line loses packets, each gets
  // a small share of its rate. 0: DELTAWIRE_STREAMS in the environment, or if that says nothing as many as
  // the line asks for: from 5 ms of round trip on 4 where the kernel gives BBR, otherwise 8. The rank with
  // the higher number decides. One of them may break without loss. Never more than one on the same machine.
  int streams = 0;
  // Called when the ranks have connected, with a line for the log, at most once each: with whom this rank
  // shares no memory although it would, and why; to whom its line is long, and the kernel refuses BBR, for
  // which it is asked from 5 ms of round trip on (DELTAWIRE_BBR=off in the environment: it isn't). TCP only.
  std::function<void(const std::string&)> notice;
  LinkOptions link;
};

// Connects a full mesh; every rank calls it once, and it returns once all ranks are connected to all others.
// Strangers (wrong token, silence, garbage) are refused and do not disturb the ranks. Sockets are closed in
// forked children, so that a child cannot hide the death of its parent. A rank that can't connect tells the
// others why, which takes up to 2 s longer. Errors: kTimeout (names the missing ranks), kMismatch,
// kUnauthorized, kPeerLost, kInvalidArgument, kSystem (e.g. no descriptors left), kAborted (interrupted),
// each also if another rank found it. Their ranks are numbers of `names`.
DELTAWIRE_API Result<std::unique_ptr<Transport>> connect_tcp(std::unique_ptr<Listener> listener,
                                                             const MeshOptions& options);

// All ranks of an in-process mesh, for ranks as threads: the same engine over socket pairs.
DELTAWIRE_API Result<std::vector<std::unique_ptr<Transport>>> connect_inproc(
    int world_size, const std::vector<LinkOptions>& links = {}, std::uint32_t epoch = 0);

}  // namespace deltawire
