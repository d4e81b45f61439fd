// `ring`: reduce-scatter and all-gather round the ring (GComp, section 6.2). Each rank talks to its two
// neighbours only. In the reduce-scatter a partition travels through all ranks and ends at its owner; each
// hop decodes, adds its own share and encodes again. The owner encodes the mean once, and the all-gather
// hands these bytes on unchanged, so that all ranks decode the same. Values are divided by the world size
// before the first hop: partial sums then compare with the significance of the mean.
//
//   start:    own values / world size into staging, post all receives, send the first hop
//   complete: the other hops, piece by piece: while one is coded, the next is on the wire
#include <string>
#include <utility>

#include "reduce/pattern_reducer.h"
#include "reduce/patterns.h"
#include "reduce/ring_bucket.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

std::uint16_t scatter_slice(const Step& step) noexcept {
  return static_cast<std::uint16_t>(2 * step.bucket);
}
std::uint16_t gather_slice(const Step& step) noexcept {
  return static_cast<std::uint16_t>(2 * step.bucket + 1);
}

class RingReducer final : public PatternReducer {
 public:
  RingReducer(std::vector<std::unique_ptr<Channel>> channels, bool pipeline)
      : PatternReducer({"ring", "DWRING\r\n"}, std::move(channels)), pipeline_(pipeline) {}

  Status mask_sent(std::string_view, std::span<float>) const override {
    return fail(ErrorCode::kInvalidArgument,
                spec() +
                    " sends partial sums, not what a rank has: momentum can't be masked by it; take "
                    "gather or direct");
  }

 protected:
  std::unique_ptr<Bucket> make_bucket() const override { return std::make_unique<RingBucket>(); }
  void plan(Bucket& bucket) const override { static_cast<RingBucket&>(bucket).cut(); }
  Status start(Bucket& bucket) override;
  Result<std::uint64_t> complete(Bucket& bucket, std::uint64_t digest) override;

 private:
  Channel& scatter() { return channel(0); }
  Channel& gather() { return channel(1); }
  void post_receives(RingBucket& bucket);
  Status scatter_hop(RingBucket& bucket, int hop, Incoming* messages);
  Status gather_hop(RingBucket& bucket, int hop, Incoming* messages);
  Status send_sum(RingBucket& bucket, const RingPiece& piece);
  Status share_mean(RingBucket& bucket, const RingPiece& piece);
  static Status wait_for_all(RingBucket& bucket, std::span<Incoming> messages);

  bool pipeline_;
};

// Partitions in the order in which they pass here: in hop h of the reduce-scatter comes that of the rank h +
// 2 places to the left, the own one in the last; in hop h of the all-gather that of h + 1 places to the left.
void RingReducer::post_receives(RingBucket& bucket) {
  std::size_t count = 0;
  const int hops = bucket.world() - 1;
  for (int hop = 0; hop < hops; ++hop) {
    count += bucket.partition(bucket.left(hop + 2)).size() + bucket.partition(bucket.left(hop + 1)).size();
  }
  if (bucket.incoming.size() < count) bucket.incoming.resize(count);
  Incoming* next = bucket.incoming.data();
  for (int hop = 0; hop < hops; ++hop) {
    for (const RingPiece& piece : bucket.partition(bucket.left(hop + 2))) {
      receive(bucket, *next++, bucket.left(1), scatter_slice(bucket.step), scatter().message_bound(piece));
    }
  }
  for (int hop = 0; hop < hops; ++hop) {
    for (const RingPiece& piece : bucket.partition(bucket.left(hop + 1))) {
      receive(bucket, *next++, bucket.left(1), gather_slice(bucket.step), gather().message_bound(piece));
    }
  }
}

void scale_into_staging(RingBucket& bucket) {
  const float scale = 1.0F / static_cast<float>(bucket.world());
  for (std::size_t i = 0; i < bucket.tensors.size(); ++i) {
    const auto* values = static_cast<const float*>(bucket.tensors[i].tensor.values);
    float* staged = bucket.staged_of(i);
    for (std::uint64_t k = 0; k < bucket.tensors[i].tensor.count; ++k) staged[k] = scale * values[k];
  }
}

Status RingReducer::start(Bucket& base) {
  auto& bucket = static_cast<RingBucket&>(base);
  {
    const Stopwatch timer(bucket.report.encode_seconds);
    scale_into_staging(bucket);
  }
  if (bucket.world() == 1) return {};
  post_receives(bucket);
  for (const RingPiece& piece : bucket.partition(bucket.left(1))) {
    if (Status sent = send_sum(bucket, piece); !sent) return sent;
  }
  return {};
}

Status RingReducer::send_sum(RingBucket& bucket, const RingPiece& piece) {
  const auto message = encode(bucket, scatter(), piece, scatter_slice(bucket.step));
  if (!message) return forward_error(message);
  send(bucket, bucket.right(), scatter_slice(bucket.step), *message);
  return {};
}

// The owner encodes the mean and applies the bytes that the others get.
Status RingReducer::share_mean(RingBucket& bucket, const RingPiece& piece) {
  const std::uint16_t slice = gather_slice(bucket.step);
  const auto message = encode(bucket, gather(), piece, slice);
  if (!message) return forward_error(message);
  if (bucket.world() > 1) send(bucket, bucket.right(), slice, *message);
  return decode(bucket, gather(), join(bucket, *message), {bucket.rank(), bucket.rank(), slice}, {piece});
}

Status RingReducer::wait_for_all(RingBucket& bucket, std::span<Incoming> messages) {
  for (Incoming& message : messages) {
    if (const Result<Bytes> received = wait(bucket, message); !received) return forward_error(received);
  }
  return {};
}

Status RingReducer::scatter_hop(RingBucket& bucket, int hop, Incoming* messages) {
  const auto& pieces = bucket.partition(bucket.left(hop + 2));
  if (!pipeline_) {
    if (Status all = wait_for_all(bucket, {messages, pieces.size()}); !all) return all;
  }
  const bool is_last = hop == bucket.world() - 2;
  const Origin origin{bucket.left(1), bucket.left(1), scatter_slice(bucket.step)};
  for (const RingPiece& piece : pieces) {
    const Result<Bytes> message = wait(bucket, *messages++);
    if (!message) return forward_error(message);
    const Status added = decode(bucket, scatter(), *message, origin, {piece, Into::kAccumulate, 1.0F});
    if (!added) return added;
    const Status passed_on = is_last ? share_mean(bucket, piece) : send_sum(bucket, piece);
    if (!passed_on) return passed_on;
  }
  return {};
}

Status RingReducer::gather_hop(RingBucket& bucket, int hop, Incoming* messages) {
  const int owner = bucket.left(hop + 1);
  const auto& pieces = bucket.partition(owner);
  if (!pipeline_) {
    if (Status all = wait_for_all(bucket, {messages, pieces.size()}); !all) return all;
  }
  const bool is_last = hop == bucket.world() - 2;
  const Origin origin{owner, bucket.left(1), gather_slice(bucket.step)};
  for (const RingPiece& piece : pieces) {
    const Result<Bytes> message = wait(bucket, *messages++);
    if (!message) return forward_error(message);
    // First decoded, then passed on: spoilt bytes are seen by the neighbour of the rank that spoilt them.
    if (Status copied = decode(bucket, gather(), *message, origin, {piece}); !copied) return copied;
    if (!is_last) send(bucket, bucket.right(), gather_slice(bucket.step), {&*message, 1});
  }
  return {};
}

Result<std::uint64_t> RingReducer::complete(Bucket& base, std::uint64_t digest) {
  auto& bucket = static_cast<RingBucket&>(base);
  const int hops = bucket.world() - 1;
  Incoming* next = bucket.incoming.data();
  for (int hop = 0; hop < hops; ++hop) {
    if (Status done = scatter_hop(bucket, hop, next); !done) return forward_error(done);
    next += bucket.partition(bucket.left(hop + 2)).size();
  }
  for (int hop = 0; hop < hops; ++hop) {
    if (Status done = gather_hop(bucket, hop, next); !done) return forward_error(done);
    next += bucket.partition(bucket.left(hop + 1)).size();
  }
  if (hops == 0) {
    for (const RingPiece& piece : bucket.partition(0)) {
      if (Status done = share_mean(bucket, piece); !done) return forward_error(done);
    }
  }
  return digest64(std::as_bytes(std::span(bucket.staged)), digest);
}

}  // namespace

Result<std::unique_ptr<Reducer>> make_ring_reducer(std::string_view codec_spec,
                                                   const ReducerOptions& options) {
  // A partial sum holds other ranks' gradients, which they would fold back too: so both revert exactly.
  const ChannelOptions exact{options.policy, Revert::kExact};
  std::vector<std::unique_ptr<Channel>> channels;
  for (int i = 0; i < 2; ++i) {
    auto channel = make_channel(codec_spec, exact);
    if (!channel) return forward_error(channel);
    channels.push_back(std::move(*channel));
  }
  return std::make_unique<RingReducer>(std::move(channels), options.pipeline);
}

}  // namespace deltawire
