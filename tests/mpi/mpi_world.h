// The ranks that mpirun starts: real processes. All run the same tests in the same order; a rank that fails
// one lets the others meet their deadlines.
#pragma once

#include <memory>
#include <string>

#include "deltawire/transport.h"

namespace deltawire {

// A new mesh of all ranks; every rank calls it.
Result<std::unique_ptr<Transport>> connect_with(const std::string& settings);

// The same; a failure ends the test program, as nothing else could be tested.
std::unique_ptr<Transport> connect_world(const std::string& settings = {});

}  // namespace deltawire
