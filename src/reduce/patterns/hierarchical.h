// The exchange of `hierarchical`, for its reducer.
#pragma once

#include <memory>
#include <string_view>

#include "base/buffer_pool.h"
#include "deltawire/channel.h"
#include "reduce/buckets_in_flight.h"

namespace deltawire {

// A saved state begins with it, and then u16 members of a group (docs/reference/format.md, "Channel state").
inline constexpr std::string_view kMagicOfGroups = "DWHIER";

struct HierarchicalChannels {
  Channel& between;  // sums of groups, to their owners
  Channel& means;
  Channel& within;  // gradients, to the member of the group that adds them up
  bool passes_nonfinite = false;
};

// All that is given outlives the exchange. `members`: of a group.
std::unique_ptr<BucketExchange> make_hierarchical_exchange(BufferPool& pool,
                                                           const HierarchicalChannels& channels, int members);

}  // namespace deltawire
