// Ranks that mpirun starts, and whose messages MPI moves. Optional: in a build without MPI the function
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
// calls. MPI tells all where rank 0 listens, and a token that rank 0 draws; then they connect as by
// connect_tcp, and a Carrier hands the bytes of their messages to MPI. Votes, deadlines and the names of lost
// ranks stay on TCP, so all that Transport says holds, with these exceptions:
//
// - mpirun kills all ranks when one has been killed. If it is configured not to, the others get kPeerLost.
// - After a failure MPI itself may be unusable. A program should then exit without MPI_Finalize, which would
//   wait for the lost rank forever; mpirun ends the others.
// - connect_timeout begins once MPI is initialized: MPI_Init itself waits for all ranks without limit.
// - MPI trusts its network: it moves the bytes in the clear, and shows the token to who reads along.
// - A call of MPI that doesn't end is left behind with its thread and memory, two seconds after the mesh.
// - The communicator's duplicate lasts as long as the process.
//
// Where ranks listen: on what DELTAWIRE_INTERFACE names, otherwise on the address towards rank 0's machine,
// and rank 0 on that towards the first other machine.
//
// Initialization: a program that initializes MPI itself must ask for MPI_THREAD_MULTIPLE (threads for each
// peer call MPI), and must finalize MPI after the transport's end. Otherwise deltawire initializes MPI, and
// finalizes it when the process exits, unless a transport has failed; as in every MPI program, this waits for
// the other ranks to exit.
//
// Cost: two threads for each peer, which look for MPI's progress while bytes are on their way, and use no
// processor otherwise. 2 MiB of memory for each peer; two copies of each byte.
//
// Errors: kInvalidArgument (also: built without MPI), kState (MPI finalized already, or initialized without
// MPI_THREAD_MULTIPLE), kTimeout, and those of connect_tcp.
DELTAWIRE_API Result<std::unique_ptr<Transport>> connect_mpi(const MpiOptions& options = {});

}  // namespace deltawire
