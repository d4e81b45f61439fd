// Residuals as bytes and back (docs/reference/format.md, "Channel state"); and those of several saved
// channels, added up and cut anew, for a job that goes on with another number of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "channel/residual_store.h"
#include "deltawire/channel.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

std::vector<std::byte> save_residuals(const ResidualStore& store, std::uint64_t params_hash);

// Fills `store`, which must be empty; on error its content is unspecified.
Status load_residuals(Bytes state, std::uint64_t params_hash, ResidualStore& store);

// Fills `store`, which must be empty, as Channel::load_weighted says; on error its content is unspecified.
Status add_weighted(std::span<const WeightedState> states, const CutTensors& wanted,
                    std::uint64_t params_hash, ResidualStore& store);

}  // namespace deltawire
