// The baseline of compressed exchanges: every rank sends its pairs of key and value to all others,
// uncompressed.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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

// Sends one message, in pieces, to all other ranks, and receives theirs into `receive`, by rank; this rank's
// own entry is ignored. Empty messages are not sent, and empty buffers receive nothing. Returns the bytes
// received, by rank. No buffer is in use once it returns, not even after an error. Errors: those of
// Transport::wait.
Result<std::vector<std::uint64_t>> all_to_all(Transport& transport, Tag tag, Deadline deadline,
                                              std::span<const Bytes> own, std::span<const MutBytes> receive);

}  // namespace deltawire::linear
