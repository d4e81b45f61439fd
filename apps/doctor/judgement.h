// What the findings mean: what is wrong, and what to do.
#pragma once

#include <string>
#include <vector>

#include "doctor/findings.h"

namespace deltawire::doctor {

struct Advice {
  bool is_wrong = false;  // a job would fail, or waste most of its time; otherwise it is good to know
  std::string what{};
  std::string remedy{};

  bool operator==(const Advice&) const = default;
};

// In the order of the findings; nothing where all is well. `has_token`: whether this end has a secret.
std::vector<Advice> judge(const MachineFindings& here, const std::vector<LineFindings>& lines,
                          bool has_token);

}  // namespace deltawire::doctor
