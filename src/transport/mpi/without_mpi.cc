// Replaces connect_mpi.cc in a build without MPI.
#include "base/errors.h"
#include "deltawire/connect_mpi.h"

namespace deltawire {

bool has_mpi() noexcept {
  return false;
}

Result<std::unique_ptr<Transport>> connect_mpi(const MpiOptions&) {
  return invalid(
      "connect_mpi: this deltawire was built without MPI; install it (Debian: libopenmpi-dev, "
      "openmpi-bin) and configure with -DDELTAWIRE_MPI=ON, or use connect_tcp");
}

}  // namespace deltawire
