// `direct`: each part has one owner rank. Ranks push their compressed parts to the owners; an owner decodes
// them in rank order into the mean, compresses that once (with a residual of its own), and all pull the same
// bytes: 3LC's parameter server with its shared pull (section 3), spread over the workers. Two encodings,
// whatever the number of ranks.
//
//   start:    encode pushes, post all sends and receives
//   complete: wait for the pushes, mean in rank order, encode the pull, send it; wait for the other owners'
//             pulls, decode them into staging
#include <string>
#include <utility>

#include "reduce/owners.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

struct DirectBucket final : Bucket {
  std::vector<std::vector<Named>> input;   // by owner: parts in the caller's memory
  std::vector<std::vector<Named>> output;  // by owner: the same parts in `staged`
  std::vector<Named> mean;                 // the parts this rank owns, in `own_mean`
  std::vector<float> own_mean;             // the mean of the pushes, before it is compressed
  std::vector<Bytes> own_push;             // this rank's own push message to itself, in pieces

  Incoming& push_of(int rank) { return incoming[static_cast<std::size_t>(rank)]; }
  Incoming& pull_of(int owner) { return incoming[static_cast<std::size_t>(world() + owner)]; }
};

std::uint16_t push_slice(const Step& step) noexcept {
  return static_cast<std::uint16_t>(2 * step.bucket);
}
std::uint16_t pull_slice(const Step& step) noexcept {
  return static_cast<std::uint16_t>(2 * step.bucket + 1);
}

class DirectReducer final : public PatternReducer {
 public:
  explicit DirectReducer(std::vector<std::unique_ptr<Channel>> channels)
      : PatternReducer({"direct", "DWDIRECT"}, std::move(channels)) {}

  Status mask_sent(std::string_view name, std::span<float> momentum) const override;

 protected:
  std::unique_ptr<Bucket> make_bucket() const override { return std::make_unique<DirectBucket>(); }
  void plan(Bucket& bucket) const override;
  Status start(Bucket& bucket) override;
  Result<std::uint64_t> complete(Bucket& bucket, std::uint64_t digest) override;

 private:
  Channel& push() { return channel(0); }
  Channel& pull() { return channel(1); }
  void post_receives(DirectBucket& bucket);
  Status average_pushes(DirectBucket& bucket);
  Status share_mean(DirectBucket& bucket);
  Status collect_pulls(DirectBucket& bucket);
};

void clear_all(std::vector<std::vector<Named>>& by_owner, std::size_t world) {
  by_owner.resize(world);
  for (auto& parts : by_owner) parts.clear();
}

// The parts this rank owns, once more, in memory for their mean.
void plan_mean(DirectBucket& bucket) {
  const auto& owned = bucket.output[static_cast<std::size_t>(bucket.rank())];
  std::uint64_t elements = 0;
  for (const Named& part : owned) elements += part.tensor.count;
  bucket.own_mean.assign(elements, 0.0F);
  bucket.mean.clear();
  float* at = bucket.own_mean.data();
  for (const Named& part : owned) {
    TensorSlot slot = part.tensor;
    slot.values = at;
    bucket.mean.push_back({part.name, slot, part.first});
    at += part.tensor.count;
  }
}

void DirectReducer::plan(Bucket& base) const {
  auto& bucket = static_cast<DirectBucket&>(base);
  const auto world = static_cast<std::size_t>(bucket.world());
  bucket.incoming.resize(2 * world);
  clear_all(bucket.input, world);
  clear_all(bucket.output, world);
  for (std::size_t i = 0; i < bucket.tensors.size(); ++i) {
    const Named& tensor = bucket.tensors[i];
    auto* values = static_cast<float*>(tensor.tensor.values);
    for (const OwnedRange& range : owned_ranges(tensor.name, tensor.tensor.count, bucket.world())) {
      const auto owner = static_cast<std::size_t>(range.owner);
      TensorSlot slot{values + range.first, range.count, DType::kF32};
      if (tensor.tensor.significance != nullptr) slot.significance = tensor.tensor.significance + range.first;
      bucket.input[owner].push_back({tensor.name, slot, tensor.first + range.first});
      slot.values = bucket.staged_of(i) + range.first;
      bucket.output[owner].push_back({tensor.name, slot, tensor.first + range.first});
    }
  }
  plan_mean(bucket);
}

void DirectReducer::post_receives(DirectBucket& bucket) {
  const std::uint64_t push_bound = push().message_bound(bucket.mean);
  for (int peer = 0; peer < bucket.world(); ++peer) {
    if (peer == bucket.rank()) continue;
    if (!bucket.mean.empty()) {
      receive(bucket, bucket.push_of(peer), peer, push_slice(bucket.step), push_bound);
    }
    const auto& pulled = bucket.output[static_cast<std::size_t>(peer)];
    if (!pulled.empty()) {
      receive(bucket, bucket.pull_of(peer), peer, pull_slice(bucket.step), pull().message_bound(pulled));
    }
  }
}

Status DirectReducer::start(Bucket& base) {
  auto& bucket = static_cast<DirectBucket&>(base);
  post_receives(bucket);
  for (int i = 1; i <= bucket.world(); ++i) {
    // Everybody starts with another owner, and ends with itself, so that no owner is flooded first.
    const int owner = (bucket.rank() + i) % bucket.world();
    const auto& parts = bucket.input[static_cast<std::size_t>(owner)];
    if (parts.empty()) continue;
    const auto pieces = encode(bucket, push(), parts, push_slice(bucket.step));
    if (!pieces) return forward_error(pieces);
    if (owner == bucket.rank()) {
      bucket.own_push.assign(pieces->begin(), pieces->end());
    } else {
      send(bucket, owner, push_slice(bucket.step), *pieces);
    }
  }
  return {};
}

Status DirectReducer::average_pushes(DirectBucket& bucket) {
  const float scale = 1.0F / static_cast<float>(bucket.world());
  for (int rank = 0; rank < bucket.world(); ++rank) {
    Result<Bytes> message = rank == bucket.rank() ? Result<Bytes>(join(bucket, bucket.own_push))
                                                  : wait(bucket, bucket.push_of(rank));
    if (!message) return forward_error(message);
    const Status added = decode(bucket, push(), *message, {rank, rank, push_slice(bucket.step)},
                                {bucket.mean, Into::kAccumulate, scale});
    if (!added) return added;
  }
  return {};
}

Status DirectReducer::share_mean(DirectBucket& bucket) {
  const std::uint16_t slice = pull_slice(bucket.step);
  const auto pieces = encode(bucket, pull(), bucket.mean, slice);
  if (!pieces) return forward_error(pieces);
  for (int i = 1; i < bucket.world(); ++i) {
    send(bucket, (bucket.rank() + i) % bucket.world(), slice, *pieces);
  }
  // The owner applies the bytes that the others get, not the mean that it knows better.
  const auto& owned = bucket.output[static_cast<std::size_t>(bucket.rank())];
  return decode(bucket, pull(), join(bucket, *pieces), {bucket.rank(), bucket.rank(), slice}, {owned});
}

Status DirectReducer::collect_pulls(DirectBucket& bucket) {
  for (int owner = 0; owner < bucket.world(); ++owner) {
    Incoming& pulled = bucket.pull_of(owner);
    if (pulled.handle == Handle::kNone) continue;
    const Result<Bytes> message = wait(bucket, pulled);
    if (!message) return forward_error(message);
    const auto& parts = bucket.output[static_cast<std::size_t>(owner)];
    const Status copied = decode(bucket, pull(), *message, {owner, owner, pull_slice(bucket.step)}, {parts});
    if (!copied) return copied;
  }
  return {};
}

Result<std::uint64_t> DirectReducer::complete(Bucket& base, std::uint64_t digest) {
  auto& bucket = static_cast<DirectBucket&>(base);
  if (!bucket.mean.empty()) {
    if (Status s = average_pushes(bucket); !s) return forward_error(s);
    if (Status s = share_mean(bucket); !s) return forward_error(s);
  }
  if (Status s = collect_pulls(bucket); !s) return forward_error(s);
  return digest64(std::as_bytes(std::span(bucket.staged)), digest);
}

Status DirectReducer::mask_sent(std::string_view name, std::span<float> momentum) const {
  if (world_seen() == 0) return fail(ErrorCode::kState, "no step has been committed yet");
  for (const OwnedRange& range : owned_ranges(name, momentum.size(), world_seen())) {
    const Status masked = channel(0).mask_sent(name, range.first, momentum.subspan(range.first, range.count));
    if (!masked) return masked;
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Reducer>> make_direct_reducer(std::string_view codec_spec,
                                                     const ReducerOptions& options) {
  auto push = make_channel(codec_spec, ChannelOptions{options.policy, options.revert});
  if (!push) return forward_error(push);
  // A folding revert would keep the mean of a step whose gradients the push channels keep already: twice. So
  // the owner's residual is taken back exactly; it is only 1/N of the model.
  auto pull = make_channel(codec_spec, ChannelOptions{options.policy, Revert::kExact});
  if (!pull) return forward_error(pull);
  std::vector<std::unique_ptr<Channel>> channels;
  channels.push_back(std::move(*push));
  channels.push_back(std::move(*pull));
  return std::make_unique<DirectReducer>(std::move(channels));
}

}  // namespace deltawire
