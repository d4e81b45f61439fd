// Two doctors: one visits, at the door of the other.
#pragma once

#include <functional>

#include "deltawire/door.h"
#include "doctor/findings.h"

namespace deltawire::doctor {

struct VisitOptions {
  DoorOptions door{};                        // equal at both ends
  PortRange ports{};                         // for the door at which the other doctor calls back
  std::function<void(const char*)> stage{};  // called with what comes next
};

// Examines the line to the doctor at `at`: ten seconds, more where it is long.
LineFindings visit(const Endpoint& at, const MachineFindings& self, const VisitOptions& options);

// Answers one request of a visitor, which keeps nobody for more than 20 s. Returns the visitor's machine
// where it began a visit. Errors: what the visitor did, or did not do.
Result<std::optional<MachineFindings>> receive_visitor(Line& line, const MachineFindings& self,
                                                       const DoorOptions& options);

}  // namespace deltawire::doctor
