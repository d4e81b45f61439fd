// Makes a transport out of a fabric: the same engine as over sockets.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "deltawire/transport.h"
#include "transport/fabric/fabric.h"

namespace deltawire {

struct FabricMember {
  int rank = 0;
  int world_size = 1;
  std::uint32_t session = 0;  // equal on all ranks; another for the next mesh over the same fabric
  std::string settings;       // REQUIRES: checked by check_settings
};

// Errors: kTimeout (names the missing ranks), kMismatch, kPeerLost, kSystem.
Result<std::unique_ptr<Transport>> connect_fabric(const FabricMember& self, std::unique_ptr<Fabric> fabric,
                                                  Deadline deadline);

}  // namespace deltawire
