// What a server or a worker of a simulated job does, and what it checks on the way.
#pragma once

#include "simulation/served_run.h"

namespace deltawire::simulation {

void run_served_rank(ServedRun& run, Job& job, int rank);

}  // namespace deltawire::simulation
