// MPI is in, and a call comes back through its library; then the instruction set that codecs run, and those
// that there are.
#include <cstdio>
#include <string>

#include <deltawire/codec.h>
#include <deltawire/connect_mpi.h>

int main() {
  if (!deltawire::has_mpi()) return 1;
  const auto refused = deltawire::connect_mpi({.settings = std::string(2000, 'x')});
  if (refused || refused.error().code != deltawire::ErrorCode::kInvalidArgument) return 2;
  if (!deltawire::make_codec("3lc")) return 3;
  std::string line(*deltawire::kernel_target_in_use());
  for (const deltawire::KernelTarget& target : deltawire::kernel_targets())
    line += " " + std::string(target.name);
  std::puts(line.c_str());
}
