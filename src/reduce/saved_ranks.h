// The states that N ranks have saved, taken apart for a rank of M (Reducer::load_resized).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "deltawire/channel.h"
#include "deltawire/reducer.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "reduce/patterns/owners.h"

namespace deltawire {

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
