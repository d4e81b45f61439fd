// A transport over MPI, for programs that mpirun starts. Optional: in a build without MPI the function
// exists, and returns an error.
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
  // The communicator, as MPI_Comm_c2f returns it; none: MPI_COMM_WORLD. It is duplicated, so that the
  // program's own messages on it don't mix with deltawire's.
  std::optional<int> fortran_communicator;
  std::string settings;     // as in MeshOptions: <= 1024 bytes, compared with every other rank
  std::uint32_t epoch = 0;  // likewise
  std::chrono::milliseconds connect_timeout{60000};
};

// Whether this build has MPI.
DELTAWIRE_API bool has_mpi() noexcept;

// Connects the ranks of a communicator; all of them call it, in the same order as their other collective
// calls. It uses the engine of connect_tcp, over packets of at most 128 KiB that MPI carries: tags and their
// order, unexpected messages, kLimit for a message longer than its buffer, deadlines, the chain of waits and
// aborts are as Transport says, with these exceptions:
//
// - A killed rank is not an error on the others: mpirun kills them too. If it is configured not to, MPI
//   reports nothing, and the deadline names the rank as silent (kTimeout, not kPeerLost).
// - After a failure MPI itself may be unusable. A program should then exit without MPI_Finalize, which would
//   wait for the lost rank forever; mpirun ends the others.
// - connect_timeout begins once MPI is initialized: MPI_Init itself waits for all ranks without limit.
// - MPI trusts its network: no token, no protection against strangers.
// - Transport::traffic() doesn't count the packets' headers (24 bytes each) nor MPI's own messages.
// - When a transport ends, it waits up to 2 s for the other ranks' transports to end (otherwise its messages
//   could be mistaken for a later mesh's); if they don't, a communicator leaks until the process ends.
// - A transport can't be used or ended in a forked child.
//
// Initialization: a program that initializes MPI itself must ask for MPI_THREAD_MULTIPLE (the transport calls
// MPI from a thread of its own), and must finalize MPI after the transport's end. Otherwise deltawire
// initializes MPI, and finalizes it when the process exits, unless a transport has failed; as in every MPI
// program, this waits for the other ranks to exit.
//
// Cost: one thread that polls MPI: 20,000 times a second while packets come and go, and after 2 ms of silence
// less and less often, down to 1,000 times. So a message to an idle rank takes up to 1 ms longer, and an idle
// rank uses about 1 % of a core. Up to about 4 MiB of memory for each peer; two copies of each byte.
//
// Errors: kInvalidArgument (also: built without MPI), kState (MPI finalized already, or initialized without
// MPI_THREAD_MULTIPLE), kTimeout, kMismatch, kSystem.
DELTAWIRE_API Result<std::unique_ptr<Transport>> connect_mpi(const MpiOptions& options = {});

}  // namespace deltawire
