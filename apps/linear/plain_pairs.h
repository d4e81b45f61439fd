// The baseline of compressed exchanges: every rank sends its pairs of key and value to all others,
// uncompressed.
#pragma once

#include <span>
#include <string_view>

#include "deltawire/reducer.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire::linear {

// Its name, where others name a codec.
inline constexpr std::string_view kPlainPairs = "plain";

// Replaces the gradient with the mean over ranks, summed in rank order in float32, as `gather` does.
// `counts`: the number of pairs of each rank. A message is the keys (u32), then the values (f32), in the
// machine's byte order: 8 bytes per pair. Errors: those of Transport::wait; kCorrupt for keys that don't grow
// or are beyond the dimension.
Result<Report> average_plain_pairs(Transport& transport, std::span<const double> counts, Tag tag,
                                   Deadline deadline, Pairs& gradient);

}  // namespace deltawire::linear
