// What a build without MPI says.
#include <cstdio>
#include <string>

#include "deltawire/connect_mpi.h"

namespace {

int failures = 0;

void expect_named(const deltawire::Error& error, const std::string& option) {
  if (error.code == deltawire::ErrorCode::kInvalidArgument &&
      error.message.find("-D" + option + "=ON") != std::string::npos) {
    return;
  }
  std::fprintf(stderr, "FAILED: %s isn't named in: %s\n", option.c_str(), error.message.c_str());
  ++failures;
}

}  // namespace

int main() {
  if (!deltawire::has_mpi()) expect_named(deltawire::connect_mpi().error(), "DELTAWIRE_MPI");
  return failures == 0 ? 0 : 1;
}
