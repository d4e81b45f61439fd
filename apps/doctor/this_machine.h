// What the doctor finds on the machine that it runs on.
#pragma once

#include <string>

#include "doctor/findings.h"

namespace deltawire::doctor {

// `version`: deltawire's.
MachineFindings this_machine(const std::string& version);

// Seconds since 1970.
double wall_clock() noexcept;

}  // namespace deltawire::doctor
