// A transport over Gloo, for clusters whose jobs use Gloo already. Optional: in a build without Gloo the
// function exists, and returns an error. connect_tcp is the better choice wherever it can be used.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "deltawire/export.h"
#include "deltawire/result.h"
#include "deltawire/transport.h"

namespace deltawire {

struct GlooOptions {
  int rank = 0;
  int world_size = 1;
  std::string rendezvous_folder;  // shared by all ranks: each writes its address there
  std::string job;                // a name that no earlier job in this folder had; letters, digits, - _ .
  std::string host;               // address or name to listen on; or, if empty,
  std::string network_interface;  // the network interface ("eth0"); both empty: this host name's address
  std::string settings;           // as in MeshOptions: <= 1024 bytes, compared with every other rank
  std::uint32_t epoch = 0;        // likewise
  std::chrono::milliseconds connect_timeout{60000};
};

// Whether this build has Gloo.
DELTAWIRE_API bool has_gloo() noexcept;

// Connects a full mesh; every rank calls it once. It uses the engine of connect_tcp, over packets of at most
// 128 KiB that Gloo carries: all of Transport's contract holds (tags and their order, unexpected messages,
// kLimit for a message longer than its buffer, deadlines, the chain of waits, aborts), with these exceptions:
//
// - No token and no authentication: anyone who can reach Gloo's ports can end the job, or worse. Gloo aborts
//   a process that gets a message larger than its buffer, and checks little of what it reads. deltawire
//   itself never sends such a message; a stranger can. Use it in closed networks only.
// - A killed rank is kPeerLost and named, as over TCP. But descriptors that a forked child inherited keep
//   the connection open, and then it takes the deadline to notice.
// - A frozen rank (or a silent network) is noticed only by the deadlines: Gloo has no keep-alive.
// - connect_timeout bounds each of Gloo's own steps, so if a rank dies while the ranks connect, it can take
//   world_size times as long; the message then is Gloo's own and names an address, not a rank.
// - Transport::traffic() doesn't count the packets' headers (24 bytes each) nor Gloo's own messages.
// - At its end a transport waits for up to 2 s until the others have taken what was sent.
//
// Cost: a thread for each peer and one of Gloo, which wakes up 100 times a second; up to about 4 MiB of
// memory for each peer; two copies of each byte. SIGPIPE doesn't reach the program.
//
// Errors: kInvalidArgument (also: built without Gloo), kTimeout, kMismatch, kPeerLost, kSystem.
DELTAWIRE_API Result<std::unique_ptr<Transport>> connect_gloo(const GlooOptions& options);

}  // namespace deltawire
