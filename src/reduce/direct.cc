// `direct`: each part has one owner rank. Ranks push their compressed parts to the owners; an owner decodes
// them in rank order into the mean, compresses that once (with a residual of its own), and all pull the same
// bytes: 3LC's parameter server with its shared pull (section 3), spread over the workers. Two encodings,
// whatever the number of ranks.
//
//   start: post all receives, encode and send the pushes
//   move:  decode the pushes in rank order; encode the mean, send it as the pull; decode the others' pulls
#include <utility>

#include "reduce/owners.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns.h"

namespace deltawire {
namespace {

class DirectExchange final : public BucketExchange {
 public:
  DirectExchange(Channel& push, Channel& pull) : push_(push), pull_(pull) {}

  Status start() override;
  Result<Progress> move() override;

 private:
  void plan() override;
  void plan_own_mean();
  void post_receives();
  Result<Progress> decode_push();
  Status share_mean();
  Result<Progress> decode_pull();
  std::size_t self() const noexcept { return static_cast<std::size_t>(rank()); }
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(world()); }
  Incoming& push_from(std::size_t peer) { return incoming(peer); }
  Incoming& pull_from(std::size_t owner) { return incoming(ranks() + owner); }

  Channel& push_;
  Channel& pull_;
  std::vector<std::vector<Named>> input_;   // by owner: parts in the caller's memory
  std::vector<std::vector<Named>> output_;  // by owner: the same parts in staged_
  std::vector<Named> mean_;                 // the parts this rank owns, in own_mean_
  std::vector<float> own_mean_;             // the mean of the pushes, before it is compressed
  std::vector<Bytes> own_push_;             // this rank's own push message to itself, in pieces
  std::size_t pushes_decoded_ = 0;          // of the ranks, in order
  std::size_t pulls_decoded_ = 0;           // of the owners, in order
};

void DirectExchange::plan() {
  input_.resize(ranks());
  output_.resize(ranks());
  for (auto& parts : input_) parts.clear();
  for (auto& parts : output_) parts.clear();
  pushes_decoded_ = 0;
  pulls_decoded_ = 0;
  staged_.resize(report().element_count);
  std::uint64_t staged_at = 0;
  for (const Named& tensor : tensors_) {
    for (const OwnedRange& range : owned_ranges(tensor.name, tensor.tensor.count, world())) {
      const auto owner = static_cast<std::size_t>(range.owner);
      input_[owner].push_back(part_of(tensor, range.first, range.count, tensor.tensor.values));
      output_[owner].push_back(part_of(tensor, range.first, range.count, staged_.data() + staged_at));
    }
    staged_at += tensor.tensor.count;
  }
  plan_own_mean();
}

void DirectExchange::plan_own_mean() {
  mean_ = output_[self()];
  std::uint64_t elements = 0;
  for (const Named& part : mean_) elements += part.tensor.count;
  own_mean_.assign(elements, 0.0F);
  std::uint64_t at = 0;
  for (Named& part : mean_) {
    part.tensor.values = own_mean_.data() + at;
    at += part.tensor.count;
  }
  const auto peers = static_cast<std::uint64_t>(world() - 1);
  count_elements_sent(report().element_count - elements + peers * elements);
}

void DirectExchange::post_receives() {
  const std::uint64_t push_bound = push_.message_bound(mean_);
  for (std::size_t peer = 0; peer < ranks(); ++peer) {
    if (peer == self()) continue;
    const int from = static_cast<int>(peer);
    if (!mean_.empty()) post(push_from(peer), from, first_slice(), push_bound);
    if (!output_[peer].empty()) {
      post(pull_from(peer), from, second_slice(), pull_.message_bound(output_[peer]));
    }
  }
}

Status DirectExchange::start() {
  post_receives();
  Status encoded;
  for (int i = 1; i <= world(); ++i) {
    // Everybody starts with another owner, and ends with itself, so that no owner is flooded first.
    const int owner = (rank() + i) % world();
    const auto& parts = input_[static_cast<std::size_t>(owner)];
    if (parts.empty()) continue;
    const auto pieces = encode(push_, parts, first_slice());
    // After an error the rest is still encoded: a folding revert keeps a bucket whole or not at all.
    if (!pieces && encoded) encoded = forward_error(pieces);
    if (!encoded) continue;
    if (owner == rank()) {
      own_push_.assign(pieces->begin(), pieces->end());
    } else {
      send(owner, first_slice(), *pieces);
    }
  }
  return encoded;
}

Result<Progress> DirectExchange::decode_push() {
  const std::size_t from = pushes_decoded_;
  Bytes message;
  if (from == self()) {
    message = join(own_push_);
  } else {
    Incoming& push = push_from(from);
    if (!arrived(push)) return Progress::waits(push.handle);
    const Result<Bytes> taken = take(push);
    if (!taken) return forward_error(taken);
    message = *taken;
  }
  const int sender = static_cast<int>(from);
  const Status decoded =
      decode(push_, message, mean_, {sender, sender, first_slice()}, Into::kAccumulate, world_scale());
  if (!decoded) return forward_error(decoded);
  if (++pushes_decoded_ == ranks()) {
    if (Status s = share_mean(); !s) return forward_error(s);
  }
  return Progress::moved();
}

Status DirectExchange::share_mean() {
  const auto pieces = encode(pull_, mean_, second_slice());
  if (!pieces) return forward_error(pieces);
  send_to_all(second_slice(), *pieces);
  // The owner applies the bytes that the others get, not the mean that it knows better.
  return decode(pull_, join(*pieces), output_[self()], {rank(), rank(), second_slice()}, Into::kOverwrite,
                1.0F);
}

Result<Progress> DirectExchange::decode_pull() {
  const std::size_t owner = pulls_decoded_;
  if (owner != self() && !output_[owner].empty()) {
    Incoming& pull = pull_from(owner);
    if (!arrived(pull)) return Progress::waits(pull.handle);
    const Result<Bytes> message = take(pull);
    if (!message) return forward_error(message);
    const int sender = static_cast<int>(owner);
    const Status decoded =
        decode(pull_, *message, output_[owner], {sender, sender, second_slice()}, Into::kOverwrite, 1.0F);
    if (!decoded) return forward_error(decoded);
  }
  ++pulls_decoded_;
  return Progress::moved();
}

Result<Progress> DirectExchange::move() {
  if (!mean_.empty() && pushes_decoded_ < ranks()) return decode_push();
  if (pulls_decoded_ < ranks()) return decode_pull();
  return Progress::done();
}

class DirectReducer final : public PatternReducer {
 public:
  DirectReducer(std::vector<std::unique_ptr<Channel>> channels, const ReducerOptions& options)
      : PatternReducer({"direct", "DWDIRECT"}, std::move(channels), options) {}

  Status mask_sent(std::string_view name, std::span<float> momentum) const override {
    if (world() == 0) return fail(ErrorCode::kState, "no step has been committed yet");
    for (const OwnedRange& range : owned_ranges(name, momentum.size(), world())) {
      const Status masked =
          channel(0).mask_sent(name, range.first, momentum.subspan(range.first, range.count));
      if (!masked) return masked;
    }
    return {};
  }

 private:
  std::unique_ptr<BucketExchange> make_bucket() override {
    return std::make_unique<DirectExchange>(channel(0), channel(1));
  }
};

}  // namespace

Result<std::unique_ptr<Reducer>> make_direct_reducer(std::string_view codec_spec,
                                                     const ReducerOptions& options) {
  // A folding revert would keep the mean of a step whose gradients the push channels keep already: twice. So
  // the owner's residual is taken back exactly; it is only 1/N of the model.
  auto channels = make_channels(codec_spec, options, {options.revert, Revert::kExact});
  if (!channels) return forward_error(channels);
  return std::make_unique<DirectReducer>(std::move(*channels), options);
}

}  // namespace deltawire
