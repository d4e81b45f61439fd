// For tests of what commands refuse.
#pragma once

#include "cli/outcome.h"

namespace deltawire::cli::testing {

// What `call` throws.
template <class Call>
Failure failure_of(const Call& call) {
  try {
    (void)call();
  } catch (const Failure& failure) {
    return failure;
  }
  return {-1, "it succeeded"};
}

}  // namespace deltawire::cli::testing
