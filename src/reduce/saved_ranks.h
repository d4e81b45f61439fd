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

// kMismatch unless the states are those of all ranks, in their order, and `world` and `rank` are a place;
// else the errors of unpack_reducer_state.
Result<SavedChannels> unpack_saved_ranks(const SavedRanks& saved, std::string_view magic,
                                         std::size_t channel_count);

// For Channel::load_shares, without those of weight 0. Rank `from` of N hands rank `to` of M the common part
// of [from/N, (from+1)/N) and [to/M, (to+1)/M), as a share of the first: all its shares add up to 1. What
// ranks keep of their own gradients, 1/N of which is in the mean: shares times M/N.
std::vector<Share> shares_of_gradients(const SavedRanks& saved, const std::vector<Bytes>& states);
// What has the mean's unit, and is shared out.
std::vector<Share> shares_of_sums(const SavedRanks& saved, const std::vector<Bytes>& states);
// What has the mean's unit, and goes with its elements.
std::vector<Share> whole_shares(const std::vector<Bytes>& states);

// The part of a tensor, without memory.
Named cut_part(const Named& tensor, const OwnedRange& range);

}  // namespace deltawire
