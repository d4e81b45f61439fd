// What a simulated job is held to when it is over.
#pragma once

#include <string>

#include "simulation/job.h"

namespace deltawire::simulation {

// A promise that the job broke; empty: it broke none.
std::string broken_promise(Job& job);

}  // namespace deltawire::simulation
