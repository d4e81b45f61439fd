// One message from each rank to each other one, all at the same time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire::linear {

// By rank; this rank's own entries stay as they are.
struct Parcels {
  explicit Parcels(int world) : to(static_cast<std::size_t>(world)), from(static_cast<std::size_t>(world)) {}

  std::vector<std::vector<Bytes>> to;  // pieces of one message; without a byte nothing is sent
  std::vector<MutBytes> from;          // where a message goes; without room none is waited for
};

// Sends and receives all of them; the bytes that came, by rank. No memory of `parcels` is in use when it
// returns, with an error as well. Errors: those of Transport::wait.
Result<std::vector<std::uint64_t>> trade(Transport& transport, Tag tag, Deadline deadline,
                                         const Parcels& parcels);

}  // namespace deltawire::linear
