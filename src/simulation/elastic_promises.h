// What must be true of an elastic session when all its processes have ended (docs/design/simulation.md).
#pragma once

#include <string>

#include "simulation/elastic_run.h"

namespace deltawire::simulation {

// The first promise that was broken, in words, or nothing.
std::string broken_promise(const ElasticRun& run);

}  // namespace deltawire::simulation
