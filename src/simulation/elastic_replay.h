// The epochs of an elastic session, each alone and undisturbed.
#pragma once

#include <string>

#include "simulation/elastic_run.h"

namespace deltawire::simulation {

// Begins each epoch's ranks with the residuals that its members had after their last step before it, repeats
// its steps, and compares means and residuals with what its members have seen: to the last bit. Returns the
// first difference, or nothing. No simulation goes on after it in this one's place.
std::string differs_from_undisturbed(const ElasticRun& run);

}  // namespace deltawire::simulation
