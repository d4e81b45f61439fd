// `gather`: every rank compresses its whole tensors once and sends the one message to all others; everybody
// decodes the messages of all ranks, its own included, in rank order, each scaled by 1/N. One encoding, one
// residual, nobody's mean is compressed again: the exchange of the papers whose updates are very sparse (SBC,
// algorithm 1: the server sums and broadcasts what the clients sent; FastSGD, section 4: key-value pairs).
//
//   start: post all receives, encode, send to all
//   move:  decode one rank's message
#include <algorithm>
#include <cassert>
#include <utility>

#include "base/errors.h"
#include "reduce/bucket_run.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns/message_plan.h"
#include "reduce/patterns/part_means.h"
#include "reduce/patterns/patterns.h"

namespace deltawire {
namespace {

// A tensor without elements is a part, too; one in key-value form is never cut.
std::vector<OwnedRange> gathered_ranges(const Named& tensor, std::uint64_t most_elements) {
  const std::uint64_t elements = tensor.tensor.elements();
  const std::uint64_t most = tensor.tensor.has_keys() ? elements : most_elements;
  std::vector<OwnedRange> ranges{{0, std::min(most, elements), 0}};
  for (std::uint64_t first = most; first < elements; first += most) {
    ranges.push_back({first, std::min(most, elements - first), 0});
  }
  return ranges;
}

class GatherExchange final : public BucketExchange {
 public:
  GatherExchange(BufferPool& pool, Channel& channel, PartBackend* backend, std::uint64_t most_elements)
      : BucketExchange(pool, backend),
        channel_(channel),
        most_elements_(most_elements),
        means_(run_, tensors_, plan_) {}

  Status start(bool) override {
    if (run_.report().element_count == 0) {
      sender_ = run_.world();
      return {};
    }
    RETURN_IF_ERROR(plan_.check_bounds(channel_, run_.step().number));
    Status started = or_no_memory("posting receives", [&] { return post_receives(); });
    for (const PartMessage& message : planned()) {
      // After an error the rest is still encoded: a folding revert keeps a bucket whole or not at all.
      Status shared = or_no_memory("sending", [&]() -> Status {
        ASSIGN_OR_RETURN(const auto pieces, run_.encode_in_place(channel_, message.layout(), kFirstStage, 0));
        if (!started) return {};
        own_.push_back(pieces);
        messages_.send_to_all(kFirstStage, pieces);
        return {};
      });
      if (!shared && started) started = std::move(shared);
    }
    return started;
  }

  Result<Progress> move(bool) override {
    if (sender_ == run_.world()) {
      for (std::size_t m = 0; m < planned().size(); ++m) means_.sum_up({0, m});
      means_.join_pairs();
      return Progress::done();
    }
    if (sender_ == run_.rank()) {
      assert(message_ < own_.size());
      const bool as_it_is = channel_.sends_values(planned()[message_].layout(), run_.step().number);
      RETURN_IF_ERROR(as_it_is ? means_.add_own({0, message_}) : add_message(own_[message_]));
    } else {
      Incoming& arrival = receive(sender_, message_);
      if (!messages_.arrived(arrival)) return Progress::waits(arrival.handle);
      ASSIGN_OR_RETURN(const Bytes message, messages_.take(arrival));
      RETURN_IF_ERROR(add_message(std::span(&message, 1)));
      arrival.buffer.reset();
    }
    if (sender_ == run_.world() - 1) means_.settle({0, message_});
    if (++message_ == planned().size()) {
      message_ = 0;
      ++sender_;
    }
    return Progress::moved();
  }

 private:
  void plan(bool is_known) override {
    if (is_known) {
      plan_.place(tensors_.all());
    } else {
      plan_.cut(tensors_.all(), 1, {most_elements_, most_elements_}, [&](const Named& tensor) {
        return TensorParts{gathered_ranges(tensor, most_elements_), {tensor.tensor.elements(), 1}};
      });
    }
    means_.open(0);
    messages_.open(planned().size() * static_cast<std::size_t>(run_.world() - 1));
    run_.report().raw_bytes = static_cast<std::uint64_t>(run_.world() - 1) * tensors_.raw_bytes();
    sender_ = 0;
    message_ = 0;
    own_.clear();
  }

  // All ranks' messages have the same parts, and every rank sums them up.
  std::span<const PartMessage> planned() const noexcept { return plan_.list(0); }

  Status post_receives() {
    for (int peer = 0; peer < run_.world(); ++peer) {
      if (peer == run_.rank()) continue;
      for (std::size_t m = 0; m < planned().size(); ++m) {
        messages_.post(receive(peer, m), peer, kFirstStage,
                       planned()[m].longest(channel_, run_.step().number));
      }
    }
    return {};
  }

  Status add_message(std::span<const Bytes> message) {
    return means_.add(channel_, std::span(&message, 1), {0, message_}, {sender_, sender_, kFirstStage});
  }
  Incoming& receive(int peer, std::size_t message) {
    return messages_.incoming(static_cast<std::size_t>(peer) * planned().size() + message);
  }

  Channel& channel_;
  std::uint64_t most_elements_;
  MessagePlan plan_;
  PartMeans means_;
  std::vector<std::span<const Bytes>> own_;  // this rank's messages, in pieces
  int sender_ = 0;                           // whose messages are decoded next,
  std::size_t message_ = 0;                  // and which of them
};

class GatherReducer final : public PatternReducer {
 public:
  GatherReducer(Channels channels, const ReducerOptions& options, std::uint64_t most_elements)
      : PatternReducer({"gather", "DWGATHER", true}, std::move(channels), options),
        most_elements_(most_elements) {}

  Status mask_sent(std::string_view name, std::span<float> momentum) const override {
    for (std::uint64_t first = 0; first < momentum.size(); first += most_elements_) {
      const std::uint64_t count = std::min(most_elements_, momentum.size() - first);
      RETURN_IF_ERROR(channel(0).mask_sent(name, first, momentum.subspan(first, count)));
    }
    return {};
  }

 private:
  std::unique_ptr<BucketExchange> make_bucket() override {
    return std::make_unique<GatherExchange>(pool(), channel(0), options().backend.get(), most_elements_);
  }
  std::uint64_t copies_sent(std::size_t, const Named&, const PartUse&) const override { return others(); }
  ResizedChannel resized_channel(std::size_t, const SavedRanks& saved,
                                 const SavedChannels& channels) const override {
    ResizedChannel kept{weigh_gradients(saved, channels[0]), {}};
    for (const Named& tensor : saved.tensors) {
      for (const OwnedRange& range : gathered_ranges(tensor, most_elements_)) {
        kept.parts.push_back(cut_part(tensor, range));
      }
    }
    return kept;
  }

  std::uint64_t most_elements_;
};

}  // namespace

Result<std::unique_ptr<WakeableReducer>> make_gather_reducer(std::string_view codecs,
                                                             const ReducerOptions& options,
                                                             std::uint64_t most_elements) {
  ASSIGN_OR_RETURN(auto channels, make_channels(codecs, options, {options.revert}));
  return std::make_unique<GatherReducer>(std::move(channels), options, most_elements);
}

}  // namespace deltawire
