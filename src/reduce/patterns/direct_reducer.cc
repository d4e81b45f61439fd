// The reducer of `direct`: whose parts are whose, saved states, and momentum that was sent.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns/direct.h"
#include "reduce/patterns/owners.h"
#include "reduce/patterns/patterns.h"

namespace deltawire {
namespace {

class DirectReducer final : public PatternReducer {
 public:
  DirectReducer(Channels channels, const ReducerOptions& options, std::uint64_t most_elements)
      : PatternReducer({"direct", "DWDIRECT", true}, std::move(channels), options),
        most_{std::min(most_elements, kPieceElements), most_elements} {}

  Status mask_sent(std::string_view name, std::span<float> momentum) const override {
    if (world() == 0) return wrong_state("no step has been committed yet");
    // The name says nothing of the form, and each is cut in its own way. To mask a part twice changes
    // nothing.
    if (Status masked = mask_ranges(name, momentum); masked) return masked;
    return mask_key_ranges(name, momentum);
  }

 private:
  std::unique_ptr<BucketExchange> make_bucket() override {
    return make_direct_exchange(pool(), {channel(0), channel(1), options().backend.get(), meter()}, most_,
                                window_);
  }
  // A push to its owner, which may be this rank, or a pull to all.
  std::uint64_t copies_sent(std::size_t channel, const Named& tensor, const PartUse& part) const override {
    return channel == 1 ? others() : pushes_of_part(tensor, part.first, most_, rank(), world());
  }
  ResizedChannel resized_channel(std::size_t channel, const SavedRanks& saved,
                                 const SavedChannels& channels) const override {
    return resized_direct_channel(channel, saved, channels, most_);
  }
  Status mask_ranges(std::string_view name, std::span<float> momentum) const {
    for (const OwnedRange& range : owned_ranges(name, momentum.size(), world(), most_.dense)) {
      RETURN_IF_ERROR(channel(0).mask_sent(name, range.first, momentum.subspan(range.first, range.count)));
    }
    return {};
  }
  Status mask_key_ranges(std::string_view name, std::span<float> momentum) const {
    const KeyPartition partition = key_partition_of(momentum.size(), world());
    std::vector<float> own;  // of the part, in its order
    for (const OwnedRange& range : owned_key_ranges(name, momentum.size(), world(), most_.pairs)) {
      const std::uint32_t shard = partition.shard_at(range.first);
      const auto before = static_cast<std::uint32_t>(range.first - partition.first(shard));
      const auto key = [&](std::size_t i) {
        return partition.key_at({shard, before + static_cast<std::uint32_t>(i)});
      };
      own.resize(range.count);
      for (std::size_t i = 0; i < own.size(); ++i) own[i] = momentum[key(i)];
      RETURN_IF_ERROR(channel(0).mask_sent(name, range.first, own));
      for (std::size_t i = 0; i < own.size(); ++i) momentum[key(i)] = own[i];
    }
    return {};
  }

  MostElements most_;
  std::shared_ptr<PieceWindow> window_ = std::make_shared<PieceWindow>(most_.dense);
};

}  // namespace

TensorParts direct_parts(const Named& tensor, int world, const MostElements& most) {
  const std::uint64_t elements = tensor.tensor.elements();
  if (!tensor.tensor.has_keys()) return {owned_ranges(tensor.name, elements, world, most.dense)};
  return {owned_key_ranges(tensor.name, elements, world, most.pairs), key_partition_of(elements, world)};
}

ResizedChannel resized_direct_channel(std::size_t channel, const SavedRanks& saved,
                                      const SavedChannels& channels, const MostElements& most) {
  const bool pushes = channel == 0;
  ResizedChannel kept;
  kept.states = pushes ? weigh_gradients(saved, channels[0]) : weigh_equally(channels[1]);
  for (const Named& tensor : saved.tensors) {
    for (const OwnedRange& range :
         owned_ranges(tensor.name, tensor.tensor.elements(), saved.world, most.dense)) {
      if (pushes || range.owner == saved.rank) kept.parts.push_back(cut_part(tensor, range));
    }
  }
  return kept;
}

std::uint64_t pushes_of_part(const Named& tensor, std::uint64_t first, const MostElements& most, int rank,
                             int world) {
  for (const OwnedRange& range : direct_parts(tensor, world, most).ranges) {
    if (range.first == first) return range.owner == rank ? 0 : 1;
  }
  return 0;
}

Result<std::unique_ptr<WakeableReducer>> make_direct_reducer(std::string_view codecs,
                                                             const ReducerOptions& options,
                                                             std::uint64_t most_elements) {
  // A folding revert would keep the mean of a step whose gradients the push channels keep already: twice. So
  // the owner's residual is taken back exactly; it is only 1/N of the model.
  ASSIGN_OR_RETURN(auto channels, make_channels(codecs, options, {options.revert, Revert::kExact}));
  return std::make_unique<DirectReducer>(std::move(channels), options, most_elements);
}

}  // namespace deltawire
