// Rank and world size from the environment of a parallel launcher (mpirun, srun).
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace deltawire::linear {

struct Launched {
  std::string by;  // "mpirun", "srun"
  int rank = 0;
  int world = 1;
};

using Environment = std::function<const char*(const char*)>;  // as std::getenv

// Knows Open MPI's mpirun, launchers that speak PMI (MPICH, Intel MPI), and srun, in this order, since mpirun
// may run inside a Slurm job. None if there are no such variables or their values are not valid. Uses only
// variables that srun sets itself: a batch script of Slurm is not a task of srun.
std::optional<Launched> find_launcher(const Environment& environment);

}  // namespace deltawire::linear
