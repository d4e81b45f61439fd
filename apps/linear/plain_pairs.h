// The yardstick of compressed exchanges: every rank's pairs of key and value, as they are, to all others.
#pragma once

#include <span>
#include <string_view>

#include "deltawire/reducer.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire::linear {

// What the place of a codec names it by.
inline constexpr std::string_view kPlainPairs = "plain";

// Puts the mean over ranks in the gradient's place: sums in rank order, in float32, as `gather` makes them.
// `counts` are the ranks' numbers of pairs. A message is the keys (u32), then the values (f32), as they lie
// in memory: 8 bytes a pair. Errors: those of Transport::wait; kCorrupt for keys that don't grow, or lie
// beyond the dimension.
Result<Report> average_plain_pairs(Transport& transport, std::span<const double> counts, Tag tag,
                                   Deadline deadline, Pairs& gradient);

}  // namespace deltawire::linear
