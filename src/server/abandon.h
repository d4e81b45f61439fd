// Leaving a transport with operations posted, whose memory is about to go.
#pragma once

#include <span>
#include <string>

#include "deltawire/transport.h"
#include "transport/process/machine.h"

namespace deltawire {

// Aborts the transport, unless it has failed already. On return it touches none of the operations' memory.
inline void abandon(Transport& transport, std::span<const Handle> posted, const std::string& why) {
  transport.abort({ErrorCode::kAborted, why});
  for (const Handle handle : posted) (void)transport.wait(handle, MachineClock::now());
}

}  // namespace deltawire
