// `gather`: every rank compresses its whole tensors once and sends the one message to all others; everybody
// decodes the messages of all ranks, its own included, in rank order, each scaled by 1/N. One encoding, one
// residual, nobody's mean is compressed again: the exchange of the papers whose updates are very sparse (SBC,
// algorithm 1: the server sums and broadcasts what the clients sent; FastSGD, section 4: key-value pairs).
//
//   start: post all receives, encode, send to all
//   move:  decode one rank's message
#include <algorithm>
#include <utility>

#include "base/no_memory.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns/merge_pairs.h"
#include "reduce/patterns/part_messages.h"
#include "reduce/patterns/patterns.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

// The messages are the same whether the tensors are dense or key-value; only what becomes of them differs.
class GatherExchange final : public BucketExchange {
 public:
  GatherExchange(BufferPool& pool, Channel& channel, std::uint64_t most_elements)
      : BucketExchange(pool), channel_(channel), most_elements_(most_elements) {}

  // The next bucket has key-value tensors, and publish gives their means to `means`.
  void expect_pairs(std::vector<Pairs>& means) noexcept { means_ = &means; }

  Status start() override;
  Result<Progress> move() override;
  std::uint64_t digest(std::uint64_t seed) const override;
  bool finite() const override;
  void publish() override;

 private:
  void plan() override;
  void stage();
  Status check_bounds();
  Status post_receives();
  Status share(std::span<const Named> parts, bool sends);
  Status add_message(std::span<const Bytes> message);
  Status add_pairs(std::span<const Bytes> message);
  Incoming& receive(std::size_t peer, std::size_t message) {
    return incoming(peer * shapes_.size() + message);
  }

  Channel& channel_;
  std::uint64_t most_elements_;
  PartMessages input_;   // the parts in the caller's memory
  PartMessages shapes_;  // the same parts: dense, in staging memory once that is taken (key-value: without)
  bool is_staged_ = false;
  std::vector<std::vector<Bytes>> own_;  // this rank's messages, in pieces
  int sender_ = 0;                       // whose messages are decoded next,
  std::size_t message_ = 0;              // and which of them
  // Key-value buckets alone.
  std::vector<Pairs>* means_ = nullptr;
  MergedPairs sums_;
  std::vector<Pairs> addends_;  // one message
  std::size_t tensor_ = 0;      // the message's first
};

void GatherExchange::plan() {
  sender_ = 0;
  message_ = 0;
  tensor_ = 0;
  is_staged_ = false;
  own_.clear();
  input_.clear();
  shapes_.clear();
  std::vector<Named> whole;
  for (const Named& tensor : tensors_.all()) {
    const std::uint64_t elements = tensor.tensor.elements();
    whole.push_back({tensor.name, {nullptr, elements, DType::kF32}, tensor.first});
    whole.back().tensor.dims = tensor.tensor.dims;
    if (means_ != nullptr) {
      // Keys of a part cut in two would have to be searched; a tensor with so many can be split by its owner.
      input_.add(tensor, most_elements_);
      shapes_.add(whole.back(), most_elements_);
      continue;
    }
    std::uint64_t first = 0;
    do {  // a tensor without elements is a part, too
      const std::uint64_t count = std::min(most_elements_, elements - first);
      input_.add(part_of(tensor, first, count, tensor.tensor.values), most_elements_);
      shapes_.add(part_of(whole.back(), first, count, nullptr), most_elements_);
      first += count;
    } while (first < elements);
  }
  if (means_ != nullptr) sums_.clear(whole);
  count_elements_sent(static_cast<std::uint64_t>(world() - 1) * report().element_count);
}

// Only when the first message is decoded: a bucket that waits needs no staging memory.
void GatherExchange::stage() {
  if (is_staged_) return;
  is_staged_ = true;
  float* at = take_staging().data();
  std::fill_n(at, report().element_count, 0.0F);
  for (std::vector<Named>& parts : shapes_) {
    for (Named& part : parts) {
      part.tensor.values = at;
      at += part.tensor.count;
    }
  }
}

// A key-value message is as long as its pairs, which the receivers can't know: they take what fits.
Status GatherExchange::check_bounds() {
  for (const std::vector<Named>& parts : input_) {
    if (Status fits = check_bound(channel_.message_bound(parts, step().number), parts); !fits) return fits;
  }
  return {};
}

Status GatherExchange::start() {
  if (report().element_count == 0) {
    sender_ = world();
    return {};
  }
  if (Status legal = check_bounds(); !legal) return legal;
  Status started = or_no_memory("posting receives", [&] { return post_receives(); });
  for (const std::vector<Named>& parts : input_) {
    // After an error the rest is still encoded: a folding revert keeps a bucket whole or not at all.
    Status shared = or_no_memory("sending", [&] { return share(parts, started.has_value()); });
    if (!shared && started) started = std::move(shared);
  }
  return started;
}

Status GatherExchange::post_receives() {
  for (int peer = 0; peer < world(); ++peer) {
    if (peer == rank()) continue;
    for (std::size_t m = 0; m < shapes_.size(); ++m) {
      const std::uint64_t bound =
          std::min(channel_.message_bound(shapes_[m], step().number), kMessageBytesMax);
      post(receive(static_cast<std::size_t>(peer), m), peer, kFirstStage, bound);
    }
  }
  return {};
}

Status GatherExchange::share(std::span<const Named> parts, bool sends) {
  const auto pieces = encode(channel_, parts, kFirstStage);
  if (!pieces) return forward_error(pieces);
  if (!sends) return {};
  own_.emplace_back(pieces->begin(), pieces->end());
  send_to_all(kFirstStage, *pieces);
  return {};
}

Result<Progress> GatherExchange::move() {
  if (sender_ == world()) return Progress::done();
  if (sender_ == rank()) {
    if (Status added = add_message(own_[message_]); !added) return forward_error(added);
  } else {
    Incoming& arrival = receive(static_cast<std::size_t>(sender_), message_);
    if (!arrived(arrival)) return Progress::waits(arrival.handle);
    const Result<Bytes> message = take(arrival);
    if (!message) return forward_error(message);
    if (Status added = add_message(std::span(&*message, 1)); !added) return forward_error(added);
    arrival.buffer.reset();
  }
  if (++message_ == shapes_.size()) {
    message_ = 0;
    tensor_ = 0;
    ++sender_;
  }
  return Progress::moved();
}

Status GatherExchange::add_message(std::span<const Bytes> message) {
  if (means_ != nullptr) return add_pairs(message);
  stage();
  return decode(channel_, message, shapes_[message_], {sender_, sender_, kFirstStage}, Into::kAccumulate,
                world_scale());
}

Status GatherExchange::add_pairs(std::span<const Bytes> message) {
  const Stopwatch timer(report().decode_seconds);
  const std::vector<Named>& parts = shapes_[message_];
  addends_.resize(parts.size());
  const MessageId id = message_id(sender_, kFirstStage);
  const Status decoded = channel_.decode_pairs(message, parts, id, world_scale(), addends_);
  if (!decoded) return blame(sender_, decoded.error());
  for (const Pairs& addend : addends_) sums_.add(tensor_++, addend);
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
  GatherReducer(Channels channels, const ReducerOptions& options, std::uint64_t most_elements)
      : PatternReducer({"gather", "DWGATHER"}, std::move(channels), options), most_elements_(most_elements) {}

  Status mask_sent(std::string_view name, std::span<float> momentum) const override {
    for (std::uint64_t first = 0; first < momentum.size(); first += most_elements_) {
      const std::uint64_t count = std::min(most_elements_, momentum.size() - first);
      if (Status masked = channel(0).mask_sent(name, first, momentum.subspan(first, count)); !masked) {
        return masked;
      }
    }
    return {};
  }
  Result<Report> all_reduce_pairs(std::span<const Named> tensors, std::vector<Pairs>& means, const Step& step,
                                  Transport& transport, Deadline deadline) override;

 private:
  Status check_pairs(std::span<const Named> tensors) const;
  std::unique_ptr<BucketExchange> make_bucket() override {
    return std::make_unique<GatherExchange>(pool(), channel(0), most_elements_);
  }

  std::uint64_t most_elements_;
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
  for (const Named& tensor : tensors) {
    if (!tensor.tensor.has_keys() || channel(0).takes_pairs(tensor, step.number)) continue;
    return fail(ErrorCode::kInvalidArgument,
                "tensor '" + std::string(tensor.name) + "': " + spec() +
                    " has no key-value form; take a codec that has one (CodecInfo::key_value)");
  }
  Status begun = or_no_memory("beginning a bucket", [&]() -> Status {
    if (Status legal = check_pairs(tensors); !legal) return legal;
    if (Status legal = check(tensors, step, transport); !legal) return legal;
    std::unique_ptr<BucketExchange> bucket = obtain_bucket();
    static_cast<GatherExchange&>(*bucket).expect_pairs(means);
    return launch(std::move(bucket), tensors, step, transport, deadline);
  });
  if (!begun) return give_up(transport, std::move(begun.error()));
  return finish();
}

}  // namespace

Result<std::unique_ptr<WakeableReducer>> make_gather_reducer(std::string_view codecs,
                                                             const ReducerOptions& options,
                                                             std::uint64_t most_elements) {
  auto channels = make_channels(codecs, options, {options.revert});
  if (!channels) return forward_error(channels);
  return std::make_unique<GatherReducer>(std::move(*channels), options, most_elements);
}

}  // namespace deltawire
