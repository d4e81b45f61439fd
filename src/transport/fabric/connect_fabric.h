// Makes a transport out of a fabric: the same engine as over sockets.
#pragma once

#include <memory>
#include <string>

#include "deltawire/transport.h"
#include "transport/fabric/fabric.h"

namespace deltawire {

struct FabricMember {
  int rank = 0;
  int world_size = 1;
  std::string settings;     // REQUIRES: checked by check_settings
  std::uint32_t epoch = 0;  // Transport::epoch
};

// Errors: kTimeout (names the missing ranks), kMismatch, kPeerLost, kSystem.
Result<std::unique_ptr<Transport>> connect_fabric(const FabricMember& self, std::unique_ptr<Fabric> fabric,
                                                  Deadline deadline);

}  // namespace deltawire
