// A reducer's saved state: a head and the states of its channels (docs/reference/format.md, "Channel state").
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/reducer.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "reduce/patterns/owners.h"

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

// By channel and by saved rank.
using SavedChannels = std::vector<std::vector<Bytes>>;

// kInvalidArgument unless `world` and `rank` are a place, and `continued` names one for each rank.
Status check_places(const SavedRanks& saved);

// kMismatch unless the states are those of all ranks, in their order, and `world` and `rank` are a place;
// else the errors of unpack_reducer_state.
Result<SavedChannels> unpack_saved_ranks(const SavedRanks& saved, std::string_view magic,
                                         std::size_t channel_count);

// The states for Channel::load_weighted, without those of weight 0. Rank `from` of N gives rank `to` of M the
// common part of [from/N, (from+1)/N) and [to/M, (to+1)/M), as a fraction of the first: the fractions of a
// state add up to 1.

// With SavedRanks::continued rank `to` gets all of the rank that it was.

// What ranks keep of their own gradients, 1/N of which is in the mean: fractions times M/N.
std::vector<WeightedState> weigh_gradients(const SavedRanks& saved, const std::vector<Bytes>& states);
// What has the mean's unit and is divided among the ranks.
std::vector<WeightedState> weigh_sums(const SavedRanks& saved, const std::vector<Bytes>& states);
// What has the mean's unit and goes whole to the owner of its elements.
std::vector<WeightedState> weigh_equally(const std::vector<Bytes>& states);

// Whether the states are those of the same ranks in the same places: rank `rank` may load its own.
bool is_unchanged(const SavedRanks& saved) noexcept;

// The part of a tensor, without memory.
Named cut_part(const Named& tensor, const OwnedRange& range);

}  // namespace deltawire
