#include "deltawire/connect_mpi.h"

#include <cstdlib>
#include <mutex>
#include <thread>

#include <mpi.h>

#include "transport/fabric/fabric.h"
#include "transport/mesh/settings.h"
#include "transport/mpi/mpi_fabric.h"

namespace deltawire {
namespace {

constexpr std::chrono::milliseconds kLook{1};

// Finalizes MPI with the process, not with the transport, because it can't be initialized a second time.
void finalize_at_exit() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && !MpiFabric::ranks_left_behind()) MPI_Finalize();
}

Status initialize() {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  int flag = 0;
  MPI_Finalized(&flag);
  if (flag != 0) return fail(ErrorCode::kState, "connect_mpi: MPI has been finalized already");
  int level = MPI_THREAD_SINGLE;
  MPI_Initialized(&flag);
  if (flag != 0) {
    MPI_Query_thread(&level);
    if (level == MPI_THREAD_MULTIPLE) return {};
    return fail(ErrorCode::kState,
                "connect_mpi: MPI was not initialized for several threads; call MPI_Init_thread with "
                "MPI_THREAD_MULTIPLE, or let deltawire initialize MPI");
  }
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS) {
    return fail(ErrorCode::kSystem, "connect_mpi: MPI can't be initialized; see its own messages");
  }
  if (std::atexit(finalize_at_exit) == 0 && level == MPI_THREAD_MULTIPLE) return {};
  return fail(ErrorCode::kSystem,
              "connect_mpi: this MPI library doesn't offer MPI_THREAD_MULTIPLE; install one that does");
}

// Waits for a collective operation of all ranks, with a deadline, which MPI itself lacks.
bool complete(MPI_Request& request, Deadline deadline) {
  int flag = 0;
  while (MPI_Test(&request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS) {
    if (flag != 0) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kLook);
  }
  return false;
}

tl::unexpected<Error> not_all_there(const MpiOptions& options) {
  MpiFabric::ranks_left_behind() = true;
  return fail(ErrorCode::kTimeout, "connect_mpi: not all ranks of the communicator called it within " +
                                       std::to_string(options.connect_timeout.count()) + " ms");
}

}  // namespace

bool has_mpi() noexcept {
  return true;
}

Result<std::unique_ptr<Transport>> connect_mpi(const MpiOptions& options) {
  if (Status status = check_settings("connect_mpi", options.settings); !status) return forward_error(status);
  if (Status status = initialize(); !status) return forward_error(status);
  const Deadline deadline = Clock::now() + options.connect_timeout;
  const MPI_Comm parent =
      options.fortran_communicator ? MPI_Comm_f2c(*options.fortran_communicator) : MPI_COMM_WORLD;
  if (parent == MPI_COMM_NULL) {
    return fail(ErrorCode::kInvalidArgument,
                "connect_mpi: fortran_communicator is MPI_COMM_NULL; give a communicator of this rank");
  }
  auto communicator = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Comm_idup(parent, communicator.get(), &request) != MPI_SUCCESS) {
    return fail(ErrorCode::kSystem, "connect_mpi: the communicator can't be duplicated");
  }
  if (!complete(request, deadline)) {
    [[maybe_unused]] const MPI_Comm* still_written = communicator.release();
    return not_all_there(options);
  }
  FabricMember self;
  MPI_Comm_set_errhandler(*communicator, MPI_ERRORS_RETURN);
  MPI_Comm_rank(*communicator, &self.rank);
  MPI_Comm_size(*communicator, &self.world_size);
  self.settings = options.settings;
  self.epoch = options.epoch;
  return connect_fabric(self, std::make_unique<MpiFabric>(*communicator), deadline);
}

}  // namespace deltawire
