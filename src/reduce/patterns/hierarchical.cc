// `hierarchical`: two levels, for ranks in groups with fast lines within a group and slow ones between them
// (sites, racks, hosts). Within a group every part has a member that adds up the group's gradients, which
// come almost as they are. Between the groups these sums travel as in `direct`: compressed, to the one of the
// adders that owns the part, with a residual; the owner adds them in the order of groups, compresses the mean
// once, with a residual of its own, and all ranks decode the same bytes, which the adders pass on within
// their groups. So a line between sites carries a part once in each direction, not once for each rank. Sums
// are in units of the mean, as in `ring`.
//
//   start: post all receives, encode the gradients, send them to their adders
//   move:  add one member's share; encode and send the group's sum; add one group's sum; encode and send the
//          mean; decode a mean that came, and pass it on
#include "reduce/patterns/hierarchical.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/values.h"
#include "reduce/bucket_run.h"
#include "reduce/patterns/hierarchical_plan.h"

namespace deltawire {
namespace {

// docs/reference/format.md, "Buckets and stages". What is passed on keeps the stage of means in its frame.
constexpr std::uint16_t kShareStage = 0;
constexpr std::uint16_t kSumStage = 1;
constexpr std::uint16_t kMeanStage = 2;
constexpr std::uint16_t kPassedOnStage = 3;

class HierarchicalExchange final : public BucketExchange {
 public:
  using Place = MessagePlan::Place;

  HierarchicalExchange(BufferPool& pool, const HierarchicalChannels& channels, int members)
      : BucketExchange(pool), channels_(channels), members_(members) {}

  Status start(bool) override {
    room_ = {longest(channels_.within), longest(channels_.between), longest(channels_.means)};
    post_receives();
    return send_shares();
  }

  Result<Progress> move(bool) override {
    if (has_share()) return add_share().map(Progress::moved);
    if (has_sum()) return add_sum().map(Progress::moved);
    if (is_here(plan_.means)) return apply_mean().map(Progress::moved);
    if (plan_.shares.is_done() && plan_.sums.is_done() && plan_.means.is_done()) return Progress::done();
    return Progress::waits(Handle::kNone);
  }

  // The next of each kind; what this rank hands to itself is no receive.
  void more_awaited(std::vector<Handle>& handles) const override {
    const auto add = [&](const Arrivals& arrivals) {
      if (arrivals.is_done()) return;
      const Handle handle = messages_.incoming_handle(arrivals.receive());
      if (handle != Handle::kNone) handles.push_back(handle);
    };
    add(plan_.shares);
    if (may_add_sums()) add(plan_.sums);
    add(plan_.means);
  }

  // Buffers that are still being passed on stay until the step ends.
  void give_back() noexcept override {
    for (const Handle handle : passing_) {
      if (!run_.transport().done(handle)) return;
    }
    BucketExchange::give_back();
  }

 private:
  void plan(bool is_known) override {
    if (is_known) {
      plan_.place(tensors_.all());
    } else {
      plan_.cut(tensors_.all(), {members_, run_.world(), self()});
    }
    is_staged_ = false;
    own_shares_.clear();
    own_sums_.clear();
    passed_on_.assign(plan_.means.places.size(), {});
    passing_.clear();
    messages_.open(plan_.most_sends());
    run_.report().raw_bytes = plan_.raw_bytes_sent();
  }

  int self() const noexcept { return run_.rank(); }

  // One size for all messages of a channel: each fits into the memory that another leaves.
  std::uint64_t longest(const Channel& channel) const {
    std::uint64_t most = 0;
    for (std::size_t list = 0; list < plan_.messages().lists(); ++list) {
      for (const PartMessage& message : plan_.messages().list(list)) {
        most = std::max(most, channel.message_bound(message.layout(), run_.step().number));
      }
    }
    return most;
  }

  void post_receives() {
    const std::uint64_t step = run_.step().number;
    const auto post = [&](const Arrivals& arrivals, std::size_t at, std::size_t source, int peer,
                          std::uint16_t stage, const Channel& channel) {
      Incoming& receive = messages_.incoming(arrivals.receive_of(at, source));  // also where it stays unused
      if (peer == self()) return;
      messages_.post(receive, peer, stage,
                     channel.message_bound(plan_.message(arrivals.places[at]).layout(), step));
    };
    for (std::size_t at = 0; at < plan_.shares.places.size(); ++at) {
      for (std::size_t i = 0; i < plan_.shares.sources; ++i) {
        post(plan_.shares, at, i, plan_.groups().first(plan_.group()) + static_cast<int>(i), kShareStage,
             channels_.within);
      }
    }
    for (std::size_t at = 0; at < plan_.sums.places.size(); ++at) {
      for (std::size_t g = 0; g < plan_.sums.sources; ++g) {
        const int adder = plan_.groups().adder(static_cast<int>(g), plan_.sums.places[at].list);
        post(plan_.sums, at, g, adder, kSumStage, channels_.between);
      }
    }
    for (std::size_t at = 0; at < plan_.means.places.size(); ++at) {
      const std::size_t list = plan_.means.places[at].list;
      const int sender = plan_.sender_of_mean(list);
      const std::uint16_t stage = sender == plan_.groups().owner(list) ? kMeanStage : kPassedOnStage;
      post(plan_.means, at, 0, sender, stage, channels_.means);
    }
  }

  Status send_shares() {
    for (std::size_t list = 0; list < plan_.messages().lists(); ++list) {
      const int adder = plan_.groups().adder(plan_.group(), list);
      for (const PartMessage& message : plan_.messages().list(list)) {
        ASSIGN_OR_RETURN(const auto pieces,
                         run_.encode(channels_.within, message.layout(), kShareStage, room_.share));
        if (adder == self()) {
          own_shares_.push_back(pieces);
        } else {
          messages_.send(adder, kShareStage, pieces, &channels_.within);
        }
      }
    }
    return {};
  }

  // Only when the first message is decoded: a bucket that waits needs no staging memory.
  void stage() {
    if (std::exchange(is_staged_, true)) return;
    tensors_.stage();
    plan_.messages().place_means(tensors_);
    for (const Place& place : plan_.shares.places) {
      for (const Named& part : plan_.message(place).means) {
        std::fill_n(static_cast<float*>(part.tensor.values), part.tensor.count, 0.0F);
      }
    }
  }

  bool is_here(const Arrivals& arrivals) const {
    if (arrivals.is_done()) return false;
    const Handle handle = messages_.incoming_handle(arrivals.receive());
    return handle != Handle::kNone && run_.transport().done(handle);
  }

  bool has_share() const {
    if (plan_.shares.is_done()) return false;
    const bool is_own = plan_.groups().first(plan_.group()) + static_cast<int>(plan_.shares.source) == self();
    return is_own || is_here(plan_.shares);
  }

  // Not before this rank's own group is added up, in the same memory.
  bool may_add_sums() const noexcept { return !plan_.sums.is_done() && plan_.sums.next < own_sums_.size(); }

  bool has_sum() const {
    return may_add_sums() && (static_cast<int>(plan_.sums.source) == plan_.group() || is_here(plan_.sums));
  }

  Status decode(Channel& channel, std::span<const Bytes> bytes, const Place& place, const Source& source,
                Into into, float scale = 1.0F) {
    stage();
    const ReceivedMessage message{bytes, plan_.message(place).mean_layout()};
    return run_.decode(channel, std::span(&message, 1), source, into, scale);
  }

  // What the codec between groups could not carry is named with the rank that it comes from, not with the one
  // that adds it up.
  Status check_share(const Place& place, int sender) const {
    if (channels_.passes_nonfinite) return {};
    for (const Named& part : plan_.message(place).means) {
      const Codec& codec = channels_.between.codec_of(part, run_.step().number);
      const std::span values(static_cast<const float*>(part.tensor.values), part.tensor.count);
      if (!codec.info().finite_only || all_finite(values)) continue;
      return blame(sender,
                   {.code = ErrorCode::kNotFinite,
                    .message = "part '" + std::string(part.name) + "' has NaN or infinities, and " +
                               std::string(codec.info().name) + " carries finite values only",
                    .tensor = std::string(part.name),
                    .advice = kNotFiniteAdvice},
                   run_.transport().names());
    }
    return {};
  }

  // The next member's gradients, in the order of ranks; after the last the sum is complete.
  Status add_share() {
    const Place place = plan_.shares.place();
    const int sender = plan_.groups().first(plan_.group()) + static_cast<int>(plan_.shares.source);
    const Source source{sender, sender, kShareStage};
    if (sender == self()) {
      const std::span<const Bytes> own = own_shares_[plan_.shares.next];
      RETURN_IF_ERROR(decode(channels_.within, own, place, source, Into::kAccumulate, run_.world_scale()));
      channels_.within.release(own);
    } else {
      Incoming& share = messages_.incoming(plan_.shares.receive());
      ASSIGN_OR_RETURN(const Bytes bytes, messages_.take(share));
      RETURN_IF_ERROR(decode(channels_.within, std::span(&bytes, 1), place, source, Into::kAccumulate,
                             run_.world_scale()));
      share.buffer.reset();
    }
    RETURN_IF_ERROR(check_share(place, sender));
    return plan_.shares.advance() ? send_sum(place) : Status{};
  }

  Status send_sum(const Place& place) {
    assert(plan_.adds(place.list));
    const PartMessage& sum = plan_.message(place);
    ASSIGN_OR_RETURN(const auto pieces,
                     run_.encode(channels_.between, sum.mean_layout(), kSumStage, room_.sum));
    const int owner = plan_.groups().owner(place.list);
    if (owner == self()) {
      own_sums_.push_back(pieces);
    } else {
      messages_.send(owner, kSumStage, pieces, &channels_.between);
    }
    messages_.release_sent();
    return {};
  }

  // The next group's sum, in the order of groups. The owner adds the bytes that it would have sent.
  Status add_sum() {
    const Place place = plan_.sums.place();
    const auto group = static_cast<int>(plan_.sums.source);
    const int sender = plan_.groups().adder(group, place.list);
    const Source source{sender, sender, kSumStage};
    const Into into = group == 0 ? Into::kOverwrite : Into::kAccumulate;
    if (sender == self()) {
      const std::span<const Bytes> own = own_sums_[plan_.sums.next];
      RETURN_IF_ERROR(decode(channels_.between, own, place, source, into));
      channels_.between.release(own);
    } else {
      Incoming& sum = messages_.incoming(plan_.sums.receive());
      ASSIGN_OR_RETURN(const Bytes bytes, messages_.take(sum));
      RETURN_IF_ERROR(decode(channels_.between, std::span(&bytes, 1), place, source, into));
      sum.buffer.reset();
    }
    return plan_.sums.advance() ? share_mean(place) : Status{};
  }

  Status share_mean(const Place& place) {
    assert(plan_.groups().owner(place.list) == self());
    ASSIGN_OR_RETURN(const auto pieces, run_.encode(channels_.means, plan_.message(place).mean_layout(),
                                                    kMeanStage, room_.mean));
    for (int i = 1; i < plan_.groups().count(); ++i) {
      const int group = (plan_.group() + i) % plan_.groups().count();
      messages_.send(plan_.groups().adder(group, place.list), kMeanStage, pieces, &channels_.means);
    }
    send_within(kMeanStage, pieces, &channels_.means);
    // The owner applies the bytes that the others get, not the mean that it knows better.
    RETURN_IF_ERROR(apply(pieces, place, {self(), self(), kMeanStage}));
    if (run_.world() == 1) channels_.means.release(pieces);
    messages_.release_sent();
    return {};
  }

  // Decoded first, then passed on: so the rank that spoils bytes is named, not one that handed them on.
  Status apply_mean() {
    const Place place = plan_.means.place();
    const int owner = plan_.groups().owner(place.list);
    Incoming& mean = messages_.incoming(plan_.means.receive());
    ASSIGN_OR_RETURN(const Bytes bytes, messages_.take(mean));
    RETURN_IF_ERROR(
        apply(std::span(&bytes, 1), place, {plan_.sender_of_mean(place.list), owner, kMeanStage}));
    const bool passes_on = plan_.adds(place.list) && plan_.groups().members(plan_.group()) > 1;
    if (passes_on) {
      passed_on_[plan_.means.next] = bytes;
      send_within(kPassedOnStage, std::span(&passed_on_[plan_.means.next], 1), nullptr);
    } else {
      mean.buffer.reset();
    }
    (void)plan_.means.advance();
    messages_.release_sent();
    return {};
  }

  Status apply(std::span<const Bytes> mean, const Place& place, const Source& source) {
    RETURN_IF_ERROR(decode(channels_.means, mean, place, source, Into::kOverwrite));
    const Stopwatch timer(run_.report(), Stopwatch::Phase::kDecode);
    for (const Named& part : plan_.message(place).means) tensors_.settle(part);
    return {};
  }

  void send_within(std::uint16_t stage, std::span<const Bytes> pieces, Channel* from) {
    const int members = plan_.groups().members(plan_.group());
    const int first = plan_.groups().first(plan_.group());
    for (int i = 1; i < members; ++i) {  // every rank starts with another receiver
      const Handle sent = messages_.send(first + (self() - first + i) % members, stage, pieces, from);
      if (from == nullptr) passing_.push_back(sent);
    }
  }

  HierarchicalChannels channels_;
  int members_;
  HierarchicalPlan plan_;
  struct Room {
    std::uint64_t share = 0, sum = 0, mean = 0;
  } room_;  // of messages of each kind
  bool is_staged_ = false;
  std::vector<std::span<const Bytes>> own_shares_;  // by place of the plan's shares
  std::vector<std::span<const Bytes>> own_sums_;    // of its sums
  std::vector<Bytes> passed_on_;                    // of its means
  std::vector<Handle> passing_;                     // the sends that read them
};

}  // namespace

std::unique_ptr<BucketExchange> make_hierarchical_exchange(BufferPool& pool,
                                                           const HierarchicalChannels& channels,
                                                           int members) {
  return std::make_unique<HierarchicalExchange>(pool, channels, members);
}

}  // namespace deltawire
