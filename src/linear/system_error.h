// Failed system calls as errors.
#pragma once

#include <cerrno>
#include <string>

#include "base/os_error.h"
#include "deltawire/result.h"

namespace deltawire::linear {

// "<what>: <what the system says of errno>".
inline tl::unexpected<Error> system_error(const std::string& what) {
  return fail(ErrorCode::kIo, what + ": " + os_error_text(errno));
}

}  // namespace deltawire::linear
