// What a launcher of parallel programs (mpirun, srun) says in the environment of each process that it starts.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace deltawire::cli {

struct Launched {
  std::string by;  // "mpirun", "srun"
  int rank = 0;
  int world = 1;
};

using Environment = std::function<const char*(const char*)>;  // as std::getenv

// Open MPI's mpirun, launchers that speak PMI (MPICH, Intel MPI), and srun, in this order: within a job of
// Slurm the variables of mpirun are the nearer ones. None where no launcher's variables are there, or what
// they say makes no rank and world. A batch script of Slurm is no task of srun: of its variables only those
// count that srun alone sets.
std::optional<Launched> find_launcher(const Environment& environment);

}  // namespace deltawire::cli
