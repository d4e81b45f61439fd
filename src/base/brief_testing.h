// How long the series of a test are: of draws, seeds, or sizes of which many are like others.
#pragma once

#include <cstdlib>

namespace deltawire::testing {

// `whole`, or `brief` where DELTAWIRE_BRIEF is set, as `make test` sets it (cmake/layers.cmake). A program by
// itself, mutants and `make check` run the whole.
template <class T>
T whole_or_brief(T whole, T brief) {
  static const bool is_brief = std::getenv("DELTAWIRE_BRIEF") != nullptr;
  return is_brief ? brief : whole;
}

}  // namespace deltawire::testing
