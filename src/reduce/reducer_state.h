// A reducer's saved state: a head and the states of its channels (docs/reference/format.md, "Channel state").
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "deltawire/channel.h"
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

// The same without the first channel's bytes: no state to load, but one whose other channel is whole.
Result<std::vector<std::byte>> without_first_channel(Bytes state);

// The states of all channels, in order.
Result<std::vector<std::vector<std::byte>>> save_channels(std::span<const std::unique_ptr<Channel>> channels);

// Calls load_channel(i) for every channel. After an error all channels are as before.
Status load_channels(std::span<const std::unique_ptr<Channel>> channels,
                     const std::function<Status(std::size_t)>& load_channel);

}  // namespace deltawire
