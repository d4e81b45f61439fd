// The exchange of `direct`, for patterns that send something else than the tensors by it.
#pragma once

#include <cstdint>
#include <memory>

#include "base/buffer_pool.h"
#include "deltawire/channel.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns/message_plan.h"
#include "reduce/patterns/owners.h"
#include "reduce/patterns/piece_window.h"

namespace deltawire {

struct DirectChannels {
  Channel& push;
  Channel& pull;
  PartBackend* backend = nullptr;  // theirs: a device, which takes dense tensors alone
  // Counts values in memory that the ranks share, which BucketTensors::means() doesn't have; null: none are.
  std::shared_ptr<MemoryMeter> shared_meter = nullptr;
};

// All that is given outlives the exchange. `window` is that of all exchanges of a reducer.
std::unique_ptr<BucketExchange> make_direct_exchange(BufferPool& pool, const DirectChannels& channels,
                                                     const MostElements& most,
                                                     std::shared_ptr<PieceWindow> window);

// What a bucket's messages would take uncompressed: of what others own a push, of what this rank owns the
// means for all others.
std::uint64_t direct_raw_bytes(const MessagePlan& plan, const BucketTensors& tensors, const BucketRun& run);

// The parts of a tensor and their owners: dense ones are cut into ranges, keys are partitioned by stride.
TensorParts direct_parts(const Named& tensor, int world, const MostElements& most);

// What a rank of `direct` is to keep of its saved states: pushes are of all parts, means of the rank's own.
ResizedChannel resized_direct_channel(std::size_t channel, const SavedRanks& saved,
                                      const SavedChannels& channels, const MostElements& most);

// To how many ranks this one pushes the part of the tensor that begins at `first`: to its owner, if that is
// another.
std::uint64_t pushes_of_part(const Named& tensor, std::uint64_t first, const MostElements& most, int rank,
                             int world);

}  // namespace deltawire
