// One message from each rank to every other rank, all at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire::linear {

// By peer; this rank's own entries are ignored.
struct PeerMessages {
  explicit PeerMessages(int world)
      : send(static_cast<std::size_t>(world)), receive(static_cast<std::size_t>(world)) {}

  std::vector<std::vector<Bytes>> send;  // pieces of one message; an empty message is not sent
  std::vector<MutBytes> receive;         // an empty buffer receives nothing
};

// Sends and receives all messages; returns the bytes received, by peer. No buffer is in use once it returns,
// not even after an error. Errors: those of Transport::wait.
Result<std::vector<std::uint64_t>> all_to_all(Transport& transport, Tag tag, Deadline deadline,
                                              const PeerMessages& messages);

}  // namespace deltawire::linear
