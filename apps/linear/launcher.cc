#include "linear/launcher.h"

#include <array>

#include "base/spec_text.h"

namespace deltawire::linear {
namespace {

struct Variables {
  const char* launcher;
  const char* rank;
  const char* world;
};

// srun(1), "OUTPUT ENVIRONMENT VARIABLES"; mpirun(1) of Open MPI; PMI's own.
constexpr std::array<Variables, 3> kLaunchers{{
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpirun", "PMI_RANK", "PMI_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
}};

std::optional<int> number_in(const char* text) {
  return text == nullptr ? std::nullopt : parse_number<int>(text);
}

}  // namespace

std::optional<Launched> find_launcher(const Environment& environment) {
  for (const Variables& names : kLaunchers) {
    const auto rank = number_in(environment(names.rank));
    const auto world = number_in(environment(names.world));
    if (rank && world && *rank >= 0 && *rank < *world) return Launched{names.launcher, *rank, *world};
  }
  return std::nullopt;
}

}  // namespace deltawire::linear
