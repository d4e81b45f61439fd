// A reducer's saved state: a head and the states of its channels (docs/reference/format.md, "Channel state").
#pragma once

#include <string_view>
#include <vector>

#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

struct ReducerPlace {
  std::string_view magic;  // 8 bytes, one text for each pattern
  int world = 0;           // 0: no step yet
  int rank = 0;
};

struct ReducerState {
  std::vector<Bytes> channels;
  int world = 0;
  int rank = 0;
};

std::vector<std::byte> pack_reducer_state(const ReducerPlace& place,
                                          const std::vector<std::vector<std::byte>>& channels);

// Errors: kTruncated, kCorrupt (another pattern's state, or none), kUnsupportedVersion. The channels' bytes
// are not looked into.
Result<ReducerState> unpack_reducer_state(Bytes state, std::string_view magic, std::size_t channel_count);

}  // namespace deltawire
