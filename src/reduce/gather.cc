// `gather`: every rank compresses its whole tensors once and sends the one message to all others; everybody
// decodes the messages of all ranks, its own included, in rank order, each scaled by 1/N. One encoding, one
// residual, nobody's mean is compressed again: the exchange of the papers whose updates are very sparse (SBC,
// algorithm 1: the server sums and broadcasts what the clients sent; FastSGD, section 4: key-value pairs).
//
//   start: post all receives, encode, send to all
//   move:  decode one rank's message
#include <algorithm>
#include <utility>

#include "reduce/merge_pairs.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

// The messages are the same whether the tensors are dense or key-value; only what becomes of them differs.
class GatherExchange final : public BucketExchange {
 public:
  explicit GatherExchange(Channel& channel) : channel_(channel) {}

  // The next bucket has key-value tensors, and publish gives their means to `means`.
  void expect_pairs(std::vector<Pairs>& means) noexcept { means_ = &means; }

  Status start() override;
  Result<Progress> move() override;
  std::uint64_t digest(std::uint64_t seed) const override;
  bool finite() const override;
  void publish() override;

 private:
  void plan() override;
  Status add_message(Bytes message, int sender);
  Status add_pairs(Bytes message, int sender);

  Channel& channel_;
  std::vector<Named> shapes_;  // the whole tensors as parts: dense, in staged_ (key-value: without memory)
  std::vector<Bytes> own_;     // this rank's message, in pieces
  int decoded_ = 0;            // ranks, in order
  // Key-value buckets alone.
  std::vector<Pairs>* means_ = nullptr;
  MergedPairs sums_;
  std::vector<Pairs> addends_;  // one message
};

void GatherExchange::plan() {
  decoded_ = 0;
  staged_.assign(means_ == nullptr ? report().element_count : 0, 0.0F);
  addends_.resize(means_ == nullptr ? 0 : tensors_.size());
  shapes_.clear();
  std::uint64_t at = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const std::uint64_t elements = tensors_[i].tensor.elements();
    float* values = means_ == nullptr ? staged_.data() + at : nullptr;
    shapes_.push_back({tensors_[i].name, {values, elements, DType::kF32}, tensors_[i].first});
    at += elements;
  }
  if (means_ != nullptr) sums_.clear(shapes_);
  count_elements_sent(static_cast<std::uint64_t>(world() - 1) * report().element_count);
}

Status GatherExchange::start() {
  if (report().element_count == 0) {
    decoded_ = world();
    return {};
  }
  const std::uint64_t bound = channel_.message_bound(shapes_);
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank()) post(incoming(static_cast<std::size_t>(peer)), peer, first_slice(), bound);
  }
  const auto pieces = encode(channel_, tensors_, first_slice());
  if (!pieces) return forward_error(pieces);
  own_.assign(pieces->begin(), pieces->end());
  send_to_all(first_slice(), own_);
  return {};
}

Result<Progress> GatherExchange::move() {
  if (decoded_ == world()) return Progress::done();
  Bytes message;
  if (decoded_ == rank()) {
    message = join(own_);
  } else {
    Incoming& receive = incoming(static_cast<std::size_t>(decoded_));
    if (!arrived(receive)) return Progress::waits(receive.handle);
    const Result<Bytes> taken = take(receive);
    if (!taken) return forward_error(taken);
    message = *taken;
  }
  const Status added = means_ == nullptr ? add_message(message, decoded_) : add_pairs(message, decoded_);
  if (!added) return forward_error(added);
  ++decoded_;
  return Progress::moved();
}

Status GatherExchange::add_message(Bytes message, int sender) {
  return decode(channel_, message, shapes_, {sender, sender, first_slice()}, Into::kAccumulate,
                world_scale());
}

Status GatherExchange::add_pairs(Bytes message, int sender) {
  const Stopwatch timer(report().decode_seconds);
  const MessageId id = message_id(sender, first_slice());
  const Status decoded = channel_.decode_pairs(message, shapes_, id, world_scale(), addends_);
  if (!decoded) return blame(sender, decoded.error());
  for (std::size_t i = 0; i < addends_.size(); ++i) sums_.add(i, addends_[i]);
  return {};
}

std::uint64_t GatherExchange::digest(std::uint64_t seed) const {
  if (means_ == nullptr) return BucketExchange::digest(seed);
  for (const Pairs& sum : sums_.sums()) {
    seed = digest64(std::as_bytes(std::span(sum.keys)), seed);
    seed = digest64(std::as_bytes(std::span(sum.values)), seed);
  }
  return seed;
}

bool GatherExchange::finite() const {
  if (means_ == nullptr) return BucketExchange::finite();
  const auto& sums = sums_.sums();
  return std::all_of(sums.begin(), sums.end(), [](const Pairs& sum) { return all_finite(sum.values); });
}

void GatherExchange::publish() {
  if (means_ == nullptr) {
    BucketExchange::publish();
  } else {
    sums_.move_to(*std::exchange(means_, nullptr));
  }
}

class GatherReducer final : public PatternReducer {
 public:
  GatherReducer(std::vector<std::unique_ptr<Channel>> channels, const ReducerOptions& options)
      : PatternReducer({"gather", "DWGATHER"}, std::move(channels), options) {}

  Status mask_sent(std::string_view name, std::span<float> momentum) const override {
    return channel(0).mask_sent(name, 0, momentum);
  }
  Result<Report> all_reduce_pairs(std::span<const Named> tensors, std::vector<Pairs>& means, const Step& step,
                                  Transport& transport, Deadline deadline) override;

 private:
  Status check_pairs(std::span<const Named> tensors) const;
  std::unique_ptr<BucketExchange> make_bucket() override {
    return std::make_unique<GatherExchange>(channel(0));
  }
};

Status GatherReducer::check_pairs(std::span<const Named> tensors) const {
  if (in_flight() != 0) {
    return fail(ErrorCode::kState, "buckets are in flight; finish them before all_reduce_pairs");
  }
  for (const Named& tensor : tensors) {
    if (tensor.tensor.has_keys()) continue;
    return fail(ErrorCode::kInvalidArgument,
                "tensor '" + std::string(tensor.name) + "' is dense; use begin or all_reduce for it");
  }
  return {};
}

Result<Report> GatherReducer::all_reduce_pairs(std::span<const Named> tensors, std::vector<Pairs>& means,
                                               const Step& step, Transport& transport, Deadline deadline) {
  if (!channel(0).codec().info().key_value) {
    return fail(ErrorCode::kInvalidArgument,
                spec() + " has no key-value form; take a codec that has one (CodecInfo::key_value)");
  }
  if (Status legal = check_pairs(tensors); !legal) return give_up(transport, legal.error());
  if (Status legal = check(tensors, step, transport); !legal) return give_up(transport, legal.error());
  std::unique_ptr<BucketExchange> bucket = obtain_bucket();
  static_cast<GatherExchange&>(*bucket).expect_pairs(means);
  if (Status begun = launch(std::move(bucket), tensors, step, transport, deadline); !begun) {
    return forward_error(begun);
  }
  return finish();
}

}  // namespace

Result<std::unique_ptr<Reducer>> make_gather_reducer(std::string_view codec_spec,
                                                     const ReducerOptions& options) {
  auto channels = make_channels(codec_spec, options, {options.revert});
  if (!channels) return forward_error(channels);
  return std::make_unique<GatherReducer>(std::move(*channels), options);
}

}  // namespace deltawire
