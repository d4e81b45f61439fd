// Data streams whose bytes a Carrier moves:
//
//   engine == pair of links == two threads -- the connection: how many bytes follow -- the peer's two threads
//                                           ========== the carrier: the bytes ===========
//
// A receiver asks the carrier only for bytes that were announced, of which it knows how many they are, and so
// has nothing open while ranks compute. Nothing of the user's is handed to the carrier, which may still write
// after a failure: every byte is copied twice, as through a socket.
#pragma once

#include <memory>
#include <vector>

#include "deltawire/connect.h"
#include "transport/mesh/peers.h"

namespace deltawire {

// Replaces the data link to each peer. The host, which owns `inner`, outlives the links; its end waits until
// what they accepted is sent. Errors: kSystem. May throw std::system_error if no thread can be started.
Result<std::unique_ptr<LinkHost>> carry_data(std::vector<PeerLinks>& links,
                                             const std::shared_ptr<Carrier>& carrier,
                                             std::unique_ptr<LinkHost> inner);

}  // namespace deltawire
