// A transport over MPI, for programs that mpirun starts. Optional: a build without MPI has the function too,
// and it says so.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "deltawire/export.h"
#include "deltawire/result.h"
#include "deltawire/transport.h"

namespace deltawire {

struct MpiOptions {
  // The ranks that take part, as MPI_Comm_c2f(communicator) gives it; none: MPI_COMM_WORLD. It is duplicated,
  // so that the program's own messages on it don't meet deltawire's.
  std::optional<int> fortran_communicator;
  std::string settings;     // as in MeshOptions: <= 1024 bytes, compared with every other rank
  std::uint32_t epoch = 0;  // likewise
  std::chrono::milliseconds connect_timeout{60000};
};

// Whether this build has MPI.
DELTAWIRE_API bool has_mpi() noexcept;

// Connects the ranks of a communicator; all of them call it, in the same order as their other collective
// calls. Behind it works the engine of connect_tcp, on packets of at most 128 KiB that MPI carries: tags and
// their order, early messages, kLimit for a message longer than its buffer, deadlines, the chain of waits and
// aborts are as Transport says, with these exceptions:
//
// - A killed rank is not an error on the others: mpirun kills them too. Where it is configured not to, MPI
//   sends into the void, and the deadline names the rank as silent (kTimeout, not kPeerLost).
// - After a failure MPI itself may be unusable. A program should then end itself, without MPI_Finalize, which
//   would wait for the lost rank forever; mpirun ends the others.
// - connect_timeout begins once MPI is initialized: MPI_Init itself waits for all ranks without limit.
// - MPI trusts its network: no token, no protection against strangers.
// - Transport::traffic() doesn't count the packets' headers (24 bytes each) nor MPI's own messages.
// - At its end a transport waits for up to 2 s for the ends of the others' (MPI's messages can't be told from
//   those of a later mesh otherwise); if they don't come, a communicator is lost until the process ends.
// - A transport can't be used or ended in a forked child.
//
// MPI's life: where the program has initialized MPI, it must have asked for MPI_THREAD_MULTIPLE (the
// transport calls MPI from a thread of its own), and must finalize MPI after the transport's end. Where it
// hasn't, deltawire initializes MPI, and finalizes it at the exit of the process unless a transport has
// failed; as in every MPI program that waits for the other ranks' exits.
//
// Cost: one thread, that asks MPI for news: 20,000 times a second while packets come and go, and after 2 ms
// of silence less and less often, down to 1,000 times. So a message to an idle rank takes up to 1 ms more,
// and an idle rank about 1 % of a core. Up to about 4 MiB of memory for each peer; two copies of each byte.
//
// Errors: kInvalidArgument (also: built without MPI), kState (MPI finalized already, or initialized without
// MPI_THREAD_MULTIPLE), kTimeout, kMismatch, kSystem.
DELTAWIRE_API Result<std::unique_ptr<Transport>> connect_mpi(const MpiOptions& options = {});

}  // namespace deltawire
