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

// One message from each rank to every other rank, all at the same time.

// By peer; this rank's own entries are ignored.
struct PeerMessages {
  explicit PeerMessages(int world)
      : send(static_cast<std::size_t>(world)), receive(static_cast<std::size_t>(world)) {}

  std::vector<std::vector<Bytes>> send;  // pieces of one message; an empty message is not sent
  std::vector<MutBytes> receive;         // an empty buffer receives nothing
};

// Sends and receives all messages; returns the bytes received, by peer. No buffer is in use once it returns,
// not even after an error. Errors: those of Transport::wait.
Result<std::vector<std::uint64_t>> all_to_all(Transport& transport, Tag tag, Deadline deadline,
                                              const PeerMessages& messages);

}  // namespace deltawire::linear
