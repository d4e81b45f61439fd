// What a call of OwnedWeights cost this rank.
#pragma once

#include <cstdint>

namespace deltawire::linear {

struct OwnedCost {
  double encode_seconds = 0;
  double exchange_seconds = 0;
  double decode_seconds = 0;
  double update_seconds = 0;        // of weights and state
  std::uint64_t bytes_sent = 0;     // of them,
  std::uint64_t weights_bytes = 0;  // as an owner: weights
};

}  // namespace deltawire::linear
