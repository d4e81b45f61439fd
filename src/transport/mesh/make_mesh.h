// Puts a rank's transport together from connected sockets.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/transport.h"
#include "transport/links/connection.h"
#include "transport/mesh/peers.h"
#include "transport/process/fork_guard.h"

namespace deltawire {

struct PeerSockets {
  Connection data;
  Connection control;
  std::vector<Connection> more{};  // for data, beside the first; some may be empty

  // How many there are.
  std::size_t streams_more() const noexcept {
    return static_cast<std::size_t>(
        std::ranges::count_if(more, [](const Connection& one) { return static_cast<bool>(one); }));
  }
};

// kInvalidArgument for an invalid shape.
Status check_link_options(const LinkOptions& options);

// `sockets` by rank, connected and non-blocking; this rank's entry is empty. REQUIRES: the options are
// checked. Errors: kSystem.
Result<std::unique_ptr<Transport>> make_mesh(const MeshMember& self, std::vector<PeerSockets> sockets,
                                             const LinkOptions& options,
                                             std::unique_ptr<LinkHost> host = nullptr);

// The same over links of any kind; `host` may be empty.
Result<std::unique_ptr<Transport>> make_mesh(const MeshMember& self, std::vector<PeerLinks> links,
                                             const LinkOptions& options, std::unique_ptr<LinkHost> host);

}  // namespace deltawire
