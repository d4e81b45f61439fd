// `gather`: every rank sends its compressed update to all others, and everybody adds all of them in rank
// order. One encoding, nothing is compressed twice: for updates so sparse that a second compression would
// lose what the first one chose (SBC's algorithm 1: the plain mean of all updates). Bytes grow with the world
// size.
//
//   start:    encode, post receives, send to all
//   complete: decode all messages in rank order, the own one included, into the mean
#include <string>
#include <utility>

#include "reduce/merge_pairs.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

struct GatherBucket final : Bucket {
  std::vector<Named> input;   // in the caller's memory, in either form
  std::vector<Named> output;  // dense parts in `staged`; in key-value form only names and dimensions
  std::vector<Bytes> own;     // this rank's own message, in pieces
  std::vector<Pairs> update;  // key-value form: one rank's update
  MergedPairs merged;

  void publish() override {
    if (pairs == nullptr) {
      Bucket::publish();
    } else {
      merged.move_to(*pairs);
    }
  }
};

std::uint16_t slice_of(const Step& step) noexcept {
  return static_cast<std::uint16_t>(2 * step.bucket);
}

class GatherReducer final : public PatternReducer {
 public:
  explicit GatherReducer(std::vector<std::unique_ptr<Channel>> channels)
      : PatternReducer({"gather", "DWGATHER"}, std::move(channels)) {}

  Result<Report> all_reduce_pairs(std::span<const Named> tensors, std::vector<Pairs>& means, const Step& step,
                                  Transport& transport, Deadline deadline) override;
  Status mask_sent(std::string_view name, std::span<float> momentum) const override {
    return channel(0).mask_sent(name, 0, momentum);
  }

 protected:
  std::unique_ptr<Bucket> make_bucket() const override { return std::make_unique<GatherBucket>(); }
  void plan(Bucket& bucket) const override;
  Status start(Bucket& bucket) override;
  Result<std::uint64_t> complete(Bucket& bucket, std::uint64_t digest) override;

 private:
  Status add(GatherBucket& bucket, int rank, Bytes message);
  Status add_pairs(GatherBucket& bucket, int rank, Bytes message);
};

void GatherReducer::plan(Bucket& base) const {
  auto& bucket = static_cast<GatherBucket&>(base);
  bucket.incoming.resize(static_cast<std::size_t>(bucket.world()));
  bucket.input = bucket.tensors;
  bucket.output.clear();
  for (std::size_t i = 0; i < bucket.tensors.size(); ++i) {
    const Named& tensor = bucket.tensors[i];
    float* values = bucket.pairs == nullptr ? bucket.staged_of(i) : nullptr;
    bucket.output.push_back({tensor.name, {values, tensor.tensor.elements(), DType::kF32}, tensor.first});
  }
  if (bucket.pairs == nullptr) {
    bucket.staged.assign(bucket.staged.size(), 0.0F);
  } else {
    bucket.update.resize(bucket.tensors.size());
    bucket.merged.clear(bucket.output);
  }
}

Status GatherReducer::start(Bucket& base) {
  auto& bucket = static_cast<GatherBucket&>(base);
  const std::uint64_t bound = channel(0).message_bound(bucket.output);
  if (bound == 0) return {};
  for (int peer = 0; peer < bucket.world(); ++peer) {
    if (peer == bucket.rank()) continue;
    receive(bucket, bucket.incoming[static_cast<std::size_t>(peer)], peer, slice_of(bucket.step), bound);
  }
  const auto pieces = encode(bucket, channel(0), bucket.input, slice_of(bucket.step));
  if (!pieces) return forward_error(pieces);
  bucket.own.assign(pieces->begin(), pieces->end());
  for (int i = 1; i < bucket.world(); ++i) {
    send(bucket, (bucket.rank() + i) % bucket.world(), slice_of(bucket.step), *pieces);
  }
  return {};
}

Status GatherReducer::add(GatherBucket& bucket, int rank, Bytes message) {
  const float scale = 1.0F / static_cast<float>(bucket.world());
  return decode(bucket, channel(0), message, {rank, rank, slice_of(bucket.step)},
                {bucket.output, Into::kAccumulate, scale});
}

Status GatherReducer::add_pairs(GatherBucket& bucket, int rank, Bytes message) {
  const Stopwatch timer(bucket.report.decode_seconds);
  const float scale = 1.0F / static_cast<float>(bucket.world());
  const Status decoded = channel(0).decode_pairs(
      message, bucket.output, message_id(bucket, rank, slice_of(bucket.step)), scale, bucket.update);
  if (!decoded) return tl::unexpected<Error>(blame(decoded.error(), rank));
  for (std::size_t i = 0; i < bucket.update.size(); ++i) bucket.merged.add(i, bucket.update[i]);
  return {};
}

std::uint64_t digest_of(std::span<const Pairs> means, std::uint64_t digest) {
  for (const Pairs& mean : means) {
    digest = digest64(std::as_bytes(std::span(mean.keys)), digest);
    digest = digest64(std::as_bytes(std::span(mean.values)), digest);
  }
  return digest;
}

Result<std::uint64_t> GatherReducer::complete(Bucket& base, std::uint64_t digest) {
  auto& bucket = static_cast<GatherBucket&>(base);
  const bool is_pairs = bucket.pairs != nullptr;
  const bool has_messages = channel(0).message_bound(bucket.output) > 0;
  for (int rank = 0; has_messages && rank < bucket.world(); ++rank) {
    Result<Bytes> message = rank == bucket.rank()
                                ? Result<Bytes>(join(bucket, bucket.own))
                                : wait(bucket, bucket.incoming[static_cast<std::size_t>(rank)]);
    if (!message) return forward_error(message);
    const Status added = is_pairs ? add_pairs(bucket, rank, *message) : add(bucket, rank, *message);
    if (!added) return forward_error(added);
  }
  if (!is_pairs) return digest64(std::as_bytes(std::span(bucket.staged)), digest);
  return digest_of(bucket.merged.sums(), digest);
}

Result<Report> GatherReducer::all_reduce_pairs(std::span<const Named> tensors, std::vector<Pairs>& means,
                                               const Step& step, Transport& transport, Deadline deadline) {
  if (!channel(0).codec().info().key_value) {
    return fail(ErrorCode::kInvalidArgument,
                spec() + " has no key-value form; take a codec that has one, such as fastsgd");
  }
  if (in_flight() != 0) {
    return fail(ErrorCode::kState, "other buckets are in flight; finish them before all_reduce_pairs");
  }
  if (Status begun = begin_bucket(tensors, &means, step, transport, deadline); !begun) {
    return forward_error(begun);
  }
  return finish();
}

}  // namespace

Result<std::unique_ptr<Reducer>> make_gather_reducer(std::string_view codec_spec,
                                                     const ReducerOptions& options) {
  auto channel = make_channel(codec_spec, ChannelOptions{options.policy, options.revert});
  if (!channel) return forward_error(channel);
  std::vector<std::unique_ptr<Channel>> channels;
  channels.push_back(std::move(*channel));
  return std::make_unique<GatherReducer>(std::move(channels));
}

}  // namespace deltawire
