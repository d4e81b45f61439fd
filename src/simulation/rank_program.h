// What one rank of a simulated job does, and what it checks on the way.
#pragma once

#include "simulation/job.h"

namespace deltawire::simulation {

void run_rank(Job& job, int rank);

}  // namespace deltawire::simulation
