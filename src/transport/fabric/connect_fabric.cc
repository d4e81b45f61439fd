#include "transport/fabric/connect_fabric.h"

#include <utility>

#include "transport/fabric/packet_port.h"
#include "transport/mesh/make_mesh.h"

namespace deltawire {

Result<std::unique_ptr<Transport>> connect_fabric(const FabricMember& self, std::unique_ptr<Fabric> fabric,
                                                  Deadline deadline) {
  auto port = PacketPort::open(self.rank, self.world_size, std::move(fabric));
  if (!port) return forward_error(port);
  if (Status met = (*port)->greet(self.settings, self.epoch, deadline); !met) return forward_error(met);
  std::vector<PeerLinks> links = (*port)->make_links();
  return make_mesh({self.rank, self.epoch}, std::move(links), LinkOptions{}, std::move(*port));
}

}  // namespace deltawire
