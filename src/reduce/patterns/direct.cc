// `direct`: each part has one owner rank. Ranks push their compressed parts to the owners; an owner decodes
// them in rank order into the mean, compresses that once (with a residual of its own), and all pull the same
// bytes: 3LC's parameter server with its shared pull (section 3), spread over the workers. Two encodings,
// whatever the number of ranks.
//
//   start: post all receives, encode and send the pushes
//   move:  decode the pushes in rank order; encode the mean, send it as the pull; decode the others' pulls
#include <utility>

#include "base/no_memory.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns/part_exchange.h"
#include "reduce/patterns/patterns.h"

namespace deltawire {
namespace {

class DirectExchange final : public PartExchange {
 public:
  DirectExchange(BufferPool& pool, Channel& push, Channel& pull, std::uint64_t most_elements)
      : PartExchange(pool, most_elements), push_(push), pull_(pull) {}

  Status start() override;
  Result<Progress> move() override;

 private:
  void plan(bool cut_already) override;
  std::size_t list_count() const override { return static_cast<std::size_t>(world()); }
  std::size_t own_list() const override { return self(); }
  std::vector<OwnedRange> ranges_of(const Named& tensor) const override {
    return owned_ranges(tensor.name, tensor.tensor.elements(), world(), most_elements());
  }
  Status post_receives();
  Result<Progress> decode_push();
  Status share_mean();
  Result<Progress> decode_pull();
  std::size_t self() const noexcept { return static_cast<std::size_t>(rank()); }
  std::size_t ranks() const noexcept { return static_cast<std::size_t>(world()); }
  // Of the parts that this rank owns.
  std::size_t own_messages() { return input(self()).size(); }
  Incoming& push_from(std::size_t peer, std::size_t message) {
    return incoming(peer * own_messages() + message);
  }
  Incoming& pull_from(std::size_t owner, std::size_t message) {
    return incoming(first_pull_[owner] + message);
  }

  Channel& push_;
  Channel& pull_;
  std::vector<std::size_t> first_pull_;           // by owner: its first message among the receives
  std::vector<std::span<const Bytes>> own_push_;  // this rank's push messages to itself, in pieces
  std::size_t pushes_decoded_ = 0;                // of all ranks' messages, rank after rank
  std::size_t means_shared_ = 0;                  // of the own messages
  std::size_t pull_owner_ = 0;                    // whose pull is decoded next,
  std::size_t pull_message_ = 0;                  // and which of its messages
};

void DirectExchange::plan(bool cut_already) {
  PartExchange::plan(cut_already);
  std::uint64_t owned = 0;
  for (const PartMessage& message : input(self())) {
    for (const Named& part : message.parts) owned += part.tensor.elements();
  }
  count_elements_sent(report().element_count - owned + static_cast<std::uint64_t>(world() - 1) * owned);
  own_push_.clear();
  pushes_decoded_ = 0;
  means_shared_ = 0;
  pull_owner_ = 0;
  pull_message_ = 0;
  first_pull_.clear();
  std::size_t receives = ranks() * own_messages();
  for (std::size_t owner = 0; owner < ranks(); ++owner) {
    first_pull_.push_back(receives);
    receives += input(owner).size();
  }
}

Status DirectExchange::post_receives() {
  for (std::size_t peer = 0; peer < ranks(); ++peer) {
    if (peer == self()) continue;
    const int from = static_cast<int>(peer);
    for (std::size_t m = 0; m < own_messages(); ++m) {
      post(push_from(peer, m), from, kFirstStage, longest(push_, input(self())[m]));
    }
    for (std::size_t m = 0; m < input(peer).size(); ++m) {
      post(pull_from(peer, m), from, kSecondStage, longest(pull_, input(peer)[m]));
    }
  }
  return {};
}

Status DirectExchange::start() {
  if (Status legal = check_bounds(push_); !legal) return legal;
  Status started = or_no_memory("posting receives", [&] { return post_receives(); });
  for (int i = 1; i <= world(); ++i) {
    // Everybody starts with another owner, and ends with itself, so that no owner is flooded first.
    const int owner = (rank() + i) % world();
    for (const PartMessage& message : input(static_cast<std::size_t>(owner))) {
      // After an error the rest is still encoded: a folding revert keeps a bucket whole or not at all.
      Status pushed = or_no_memory("sending", [&]() -> Status {
        const auto pieces = encode(push_, message.layout(), kFirstStage);
        if (!pieces) return forward_error(pieces);
        if (!started) return {};
        if (owner == rank()) {
          own_push_.push_back(*pieces);
        } else {
          send(owner, kFirstStage, *pieces);
        }
        return {};
      });
      if (!pushed && started) started = std::move(pushed);
    }
  }
  return started;
}

Result<Progress> DirectExchange::decode_push() {
  const std::size_t from = pushes_decoded_ / own_messages();
  const std::size_t number = pushes_decoded_ % own_messages();
  const int sender = static_cast<int>(from);
  const auto add_message = [&](std::span<const Bytes> message) {
    stage();
    return add(push_, message, output(self())[number], {sender, sender, kFirstStage});
  };
  if (from == self()) {
    if (Status added = add_message(own_push_[number]); !added) return forward_error(added);
  } else {
    Incoming& push = push_from(from, number);
    if (!arrived(push)) return Progress::waits(push.handle);
    const Result<Bytes> message = take(push);
    if (!message) return forward_error(message);
    if (Status added = add_message(std::span(&*message, 1)); !added) return forward_error(added);
    push.buffer.reset();
  }
  ++pushes_decoded_;
  return Progress::moved();
}

Status DirectExchange::share_mean() {
  PartMessage& mean = output(self())[means_shared_];
  const std::vector<Named> pairs = mean.has_keys() ? mean.filled() : std::vector<Named>{};
  const auto pieces =
      encode(pull_, mean.has_keys() ? MessageLayout(pairs, mean.hash) : mean.layout(), kSecondStage);
  if (!pieces) return forward_error(pieces);
  send_to_all(kSecondStage, *pieces);
  ++means_shared_;
  // The owner applies the bytes that the others get, not the mean that it knows better.
  return replace(pull_, *pieces, mean, {rank(), rank(), kSecondStage});
}

Result<Progress> DirectExchange::decode_pull() {
  if (pull_owner_ == self() || pull_message_ == input(pull_owner_).size()) {
    ++pull_owner_;
    pull_message_ = 0;
    return Progress::moved();
  }
  Incoming& pull = pull_from(pull_owner_, pull_message_);
  if (!arrived(pull)) return Progress::waits(pull.handle);
  const Result<Bytes> message = take(pull);
  if (!message) return forward_error(message);
  stage();
  const int sender = static_cast<int>(pull_owner_);
  const Status decoded = replace(pull_, std::span(&*message, 1), output(pull_owner_)[pull_message_],
                                 {sender, sender, kSecondStage});
  if (!decoded) return forward_error(decoded);
  pull.buffer.reset();
  ++pull_message_;
  return Progress::moved();
}

Result<Progress> DirectExchange::move() {
  if (pushes_decoded_ < ranks() * own_messages()) return decode_push();
  if (means_shared_ < own_messages()) {
    if (Status shared = share_mean(); !shared) return forward_error(shared);
    return Progress::moved();
  }
  if (pull_owner_ < ranks()) return decode_pull();
  return all_decoded();
}

class DirectReducer final : public PatternReducer {
 public:
  DirectReducer(Channels channels, const ReducerOptions& options, std::uint64_t most_elements)
      : PatternReducer({"direct", "DWDIRECT", true}, std::move(channels), options),
        most_elements_(most_elements) {}

  Status mask_sent(std::string_view name, std::span<float> momentum) const override {
    if (world() == 0) return fail(ErrorCode::kState, "no step has been committed yet");
    for (const OwnedRange& range : owned_ranges(name, momentum.size(), world(), most_elements_)) {
      const Status masked =
          channel(0).mask_sent(name, range.first, momentum.subspan(range.first, range.count));
      if (!masked) return masked;
    }
    return {};
  }

 private:
  std::unique_ptr<BucketExchange> make_bucket() override {
    return std::make_unique<DirectExchange>(pool(), channel(0), channel(1), most_elements_);
  }

  std::uint64_t most_elements_;
};

}  // namespace

Result<std::unique_ptr<WakeableReducer>> make_direct_reducer(std::string_view codecs,
                                                             const ReducerOptions& options,
                                                             std::uint64_t most_elements) {
  // A folding revert would keep the mean of a step whose gradients the push channels keep already: twice. So
  // the owner's residual is taken back exactly; it is only 1/N of the model.
  auto channels = make_channels(codecs, options, {options.revert, Revert::kExact});
  if (!channels) return forward_error(channels);
  return std::make_unique<DirectReducer>(std::move(*channels), options, most_elements);
}

}  // namespace deltawire
