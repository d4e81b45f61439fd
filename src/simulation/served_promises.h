// What a parameter server's job is held to when one of its starts is over.
#pragma once

#include <string>

#include "simulation/served_run.h"

namespace deltawire::simulation {

// A promise that this start broke; empty: it broke none.
std::string broken_promise(const ServedRun& run, Job& job);

}  // namespace deltawire::simulation
