// `ring`: GComp's exchange (section 6.2, figure 8). The tensors of all ranks, scaled by 1/N, are summed
// partition by partition while they go round the ring: each hop decodes the neighbour's partial sum, adds the
// own values, encodes and sends on. The owner of a partition, the last on its way, encodes the mean once,
// applies its own bytes, and these go round unchanged, so that the replicas are bit-equal. Each rank sends
// 2 (N-1)/N of the tensors' compressed size. The scale comes first, so that partial sums compare rightly
// with what the optimizer can still see (significance).
//
// Partitions travel as messages of bounded size: while one is coded, others are on the wire. A device takes
// about as long for a message as for a partition, so there all messages of a hop are coded together.
//
//   start: post receives, encode and send the partition that begins here
//   move:  an arrival, or on a device those of a hop: add, encode and send on; or means: decode and pass on
#include <algorithm>
#include <cassert>
#include <cmath>
#include <string>
#include <utility>

#include "base/errors.h"
#include "base/float16.h"
#include "base/float_environment.h"
#include "channel/codec_rules.h"
#include "reduce/bucket_run.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns/patterns.h"
#include "reduce/patterns/ring_plan.h"

namespace deltawire {
namespace {

class RingExchange final : public BucketExchange {
 public:
  RingExchange(BufferPool& pool, Channel& scatter, Channel& gather, PartBackend* backend)
      : BucketExchange(pool, backend),
        scatter_{.channel = scatter, .slots_from = 0},
        gather_{.channel = gather, .slots_from = 1} {}

  Status start(bool) override {
    RETURN_IF_ERROR(stage());
    post_receives(scatter_);
    post_receives(gather_);
    for (Messages rest = plan_.partition(left()); !rest.empty();) {
      const Messages next = rest.first(std::min(rest.size(), most_together()));
      rest = rest.subspan(next.size());
      load(next);
      RETURN_IF_ERROR(run_.world() == 1 ? share_means(next) : send_sums(next));
    }
    return {};
  }

  // A rank's own means leave before those that it passes on: the order that the right neighbour expects.
  Result<Progress> move(bool) override {
    post_receives(scatter_);
    post_receives(gather_);
    const bool scattering = scatter_.taken < scatter_.stops.size();
    Phase& phase = scattering ? scatter_ : gather_;
    const std::span<const RingStop> stops = next_stops(phase);
    if (stops.empty()) return Progress::done();
    const Handle awaited = missing(phase, stops.size());
    if (awaited != Handle::kNone) return Progress::waits(awaited);
    RETURN_IF_ERROR(scattering ? add_arrivals(stops) : apply_arrivals(stops));
    return Progress::moved();
  }

  // Buffers that are still being passed on stay until the step ends.
  void give_back() noexcept override {
    for (const Handle forward : gather_.forwards) {
      if (!run_.transport().done(forward)) return;
    }
    BucketExchange::give_back();
  }

 private:
  void plan(bool is_known) override {
    if (!is_known) plan_.cut(tensors_.all(), run_.rank(), run_.world());
    messages_.open(0);
    // Every partition leaves twice, but this rank's not as a sum, and the right neighbour's not as a mean.
    run_.report().raw_bytes =
        2 * tensors_.raw_bytes() - plan_.raw_bytes_of(run_.rank()) - plan_.raw_bytes_of(right());
    scatter_.stops = plan_.scatter_arrivals();
    gather_.stops = plan_.gather_arrivals();
    restart(scatter_);
    restart(gather_);
  }

  // One of the two phases: its arrivals come in a fixed order into a few buffers that take turns.
  struct Phase {
    Channel& channel;
    std::size_t slots_from;  // its receives are incoming(slots_from + 2 * slot)
    std::span<const RingStop> stops = {};
    std::uint64_t longest = 0;  // message: all buffers have this size, so that they can take turns
    std::size_t posted = 0;     // of the stops
    std::size_t taken = 0;
    std::vector<Handle> forwards = {};  // by slot: the send that still reads the buffer
  };
  using Messages = std::span<const RingMessage>;

  void restart(Phase& phase) {
    phase.posted = 0;
    phase.taken = 0;
    phase.longest = 0;
    for (const RingStop& stop : phase.stops) {
      const MessageLayout layout = plan_.message(stop).layout();
      phase.longest = std::max(phase.longest, phase.channel.message_bound(layout, run_.step().number));
    }
    // One more than a hop has: the next hop's first message finds its receive posted.
    phase.forwards.assign(plan_.most_messages() + 1, Handle::kNone);
  }

  int left() const noexcept { return (run_.rank() + run_.world() - 1) % run_.world(); }
  int right() const noexcept { return (run_.rank() + 1) % run_.world(); }
  std::uint16_t stage_of(const Phase& phase) const noexcept {
    return &phase == &scatter_ ? kFirstStage : kSecondStage;
  }
  Incoming& slot(const Phase& phase, std::size_t stop) {
    return messages_.incoming(phase.slots_from + 2 * (stop % phase.forwards.size()));
  }
  // How many of a partition's messages are coded together, at most.
  std::size_t most_together() const noexcept { return tensors_.is_on_device() ? SIZE_MAX : 1; }

  // What is coded next, together: of one hop.
  std::span<const RingStop> next_stops(const Phase& phase) const {
    assert(phase.taken <= phase.stops.size());
    const auto left = phase.stops.subspan(phase.taken);
    const auto behind = std::ranges::find_if(
        left, [&](const RingStop& stop) { return stop.partition != left.front().partition; });
    return left.first(std::min(static_cast<std::size_t>(behind - left.begin()), most_together()));
  }

  Messages messages_of(std::span<const RingStop> stops) const {
    assert(!stops.empty());
    return plan_.partition(stops.front().partition).subspan(stops.front().message, stops.size());
  }

  // What keeps the next arrivals from being coded: one that has not come, or a buffer that is still being
  // passed on. kNone: all are here.
  Handle missing(Phase& phase, std::size_t count) {
    for (std::size_t stop = phase.taken; stop < phase.taken + count; ++stop) {
      if (stop == phase.posted) return phase.forwards[stop % phase.forwards.size()];
      const Incoming& arrival = slot(phase, stop);
      if (!messages_.arrived(arrival)) return arrival.handle;
    }
    return Handle::kNone;
  }

  // As many as there are free buffers; a buffer is free when its message was decoded and passed on.
  void post_receives(Phase& phase) {
    assert(phase.taken <= phase.posted && phase.posted <= phase.stops.size());
    while (phase.posted < phase.stops.size() && phase.posted < phase.taken + phase.forwards.size()) {
      Handle& forward = phase.forwards[phase.posted % phase.forwards.size()];
      if (forward != Handle::kNone && !run_.transport().done(forward)) return;
      forward = Handle::kNone;
      messages_.post(slot(phase, phase.posted), left(), stage_of(phase), phase.longest);
      ++phase.posted;
    }
  }

  // The messages of the next stops.
  Status take(Phase& phase, Messages messages) {
    assert(phase.taken + messages.size() <= phase.posted);
    arrived_.clear();
    for (std::size_t i = 0; i < messages.size(); ++i) {
      ASSIGN_OR_RETURN(arrived_.emplace_back(), messages_.take(slot(phase, phase.taken + i)));
    }
    received_.clear();
    for (std::size_t i = 0; i < messages.size(); ++i) {
      received_.push_back({std::span(arrived_).subspan(i, 1), messages[i].layout()});
    }
    return {};
  }

  // Memory for sums and means. On a device it gets all the caller's values, scaled, at once.
  Status stage() {
    if (tensors_.is_on_device()) {
      if (Status loaded = tensors_.load_on_device(run_.world_scale()); !loaded) return loaded;
    } else {
      tensors_.stage();
    }
    plan_.place(tensors_.all(), tensors_.means());
    return {};
  }

  // The caller's values, scaled, to staging memory.
  void load(Messages messages) {
    if (tensors_.is_on_device()) return;  // start() did it
    const Stopwatch timer(run_.report(), Stopwatch::Phase::kEncode);
    const FloatEnvironment environment;
    const float scale = FloatEnvironment::pinned(run_.world_scale());
    for (const RingMessage& message : messages) {
      for (std::size_t i = 0; i < message.parts.size(); ++i) {
        const TensorView& own = message.own[i];
        auto* staged = static_cast<float*>(message.parts[i].tensor.values);
        const auto* values = static_cast<const float*>(own.values);
        if (own.dtype != DType::kF32) {
          widen(own.values, own.dtype, own.count, staged);
          values = staged;
        }
        for (std::uint64_t k = 0; k < own.count; ++k) staged[k] = scale * values[k];
      }
    }
  }

  Status encode(Phase& phase, Messages messages) {
    layouts_.clear();
    for (const RingMessage& message : messages) layouts_.push_back(message.layout());
    encoded_.clear();
    return run_.encode_all(phase.channel, layouts_, stage_of(phase), 0, encoded_);
  }

  Status send_sums(Messages messages) {
    RETURN_IF_ERROR(encode(scatter_, messages));
    for (const std::span<const Bytes> pieces : encoded_) messages_.send(right(), kFirstStage, pieces);
    return {};
  }

  Status share_means(Messages messages) {
    RETURN_IF_ERROR(encode(gather_, messages));
    assert(encoded_.size() == messages.size());
    received_.clear();
    for (std::size_t i = 0; i < messages.size(); ++i) {
      if (run_.world() > 1) messages_.send(right(), kSecondStage, encoded_[i]);
      received_.push_back({encoded_[i], messages[i].layout()});
    }
    // The owner applies the bytes that the others get, not the mean that it knows better.
    return apply(messages, {run_.rank(), run_.rank(), kSecondStage});
  }

  Status add_arrivals(std::span<const RingStop> stops) {
    const Messages messages = messages_of(stops);
    RETURN_IF_ERROR(take(scatter_, messages));
    load(messages);
    RETURN_IF_ERROR(
        run_.decode(scatter_.channel, received_, {left(), left(), kFirstStage}, Into::kAccumulate, 1.0F));
    for (std::size_t i = 0; i < stops.size(); ++i) slot(scatter_, scatter_.taken++).buffer.reset();
    return stops.front().last_hop ? share_means(messages) : send_sums(messages);
  }

  // Decoded first, then passed on: so the rank that spoils bytes is named, not one that handed them on.
  Status apply_arrivals(std::span<const RingStop> stops) {
    RETURN_IF_ERROR(take(gather_, messages_of(stops)));
    RETURN_IF_ERROR(apply(messages_of(stops), {left(), stops.front().partition, kSecondStage}));
    for (const Bytes& bytes : arrived_) {
      if (!stops.front().last_hop) {
        gather_.forwards[gather_.taken % gather_.forwards.size()] =
            messages_.send(right(), kSecondStage, std::span(&bytes, 1));
      } else {
        slot(gather_, gather_.taken).buffer.reset();
      }
      ++gather_.taken;
    }
    return {};
  }

  // Decodes the means in received_, which are these messages.
  Status apply(Messages messages, const Source& source) {
    RETURN_IF_ERROR(run_.decode(gather_.channel, received_, source, Into::kOverwrite, 1.0F));
    if (tensors_.is_on_device()) return {};
    const Stopwatch timer(run_.report(), Stopwatch::Phase::kDecode);
    for (const RingMessage& message : messages) {
      for (const Named& mean : message.parts) tensors_.settle(mean);
    }
    return {};
  }

  RingPlan plan_;
  Phase scatter_;
  Phase gather_;
  // What is coded together.
  std::vector<Bytes> arrived_;
  std::vector<ReceivedMessage> received_;
  std::vector<MessageLayout> layouts_;
  std::vector<std::span<const Bytes>> encoded_;  // messages, in pieces
};

class RingReducer final : public PatternReducer {
 public:
  RingReducer(Channels channels, const ReducerOptions& options)
      : PatternReducer({"ring", "DWRING\r\n", false}, std::move(channels), options) {}

  Status mask_sent(std::string_view, std::span<float>) const override {
    return invalid(
        "what a rank sends in a ring is not its own, so its momentum can't be masked by it; take "
        "the pattern gather or direct");
  }

 private:
  std::unique_ptr<BucketExchange> make_bucket() override {
    return std::make_unique<RingExchange>(pool(), channel(0), channel(1), options().backend.get());
  }
  // A rank never encodes partial sums of its own partition: what falls on it of these waits in its means.
  ResizedChannel resized_channel(std::size_t channel, const SavedRanks& saved,
                                 const SavedChannels& channels) const override {
    const bool means = channel == 1;
    ResizedChannel kept;
    kept.states = weigh_sums(saved, channels[0]);
    if (means) {
      const std::vector<WeightedState> whole = weigh_equally(channels[1]);
      kept.states.insert(kept.states.end(), whole.begin(), whole.end());
    }
    for (const Named& tensor : saved.tensors) {
      for (const OwnedRange& range :
           owned_ranges(tensor.name, tensor.tensor.count, saved.world, kRingMessageElements)) {
        if (means == (range.owner == saved.rank)) kept.parts.push_back(cut_part(tensor, range));
      }
    }
    return kept;
  }
  // To the right neighbour.
  std::uint64_t copies_sent(std::size_t, const Named&, const PartUse&) const override {
    return std::min<std::uint64_t>(others(), 1);
  }
};

// A partial sum is coded at each hop, so that a codec's gain has the number of ranks for its exponent. What
// is allowed doesn't grow with the ranks, measured on noise up to 64 of them (docs/reference/algorithms.md).
constexpr double kMostGain = 1.25;

Status check_gain(const CodecRules& rules, std::string_view codecs) {
  const Codec& codec = rules.most_gaining();
  const double gain = codec.gain();
  if (gain <= kMostGain) return {};
  std::string factor = "any factor";
  if (std::isfinite(gain)) {
    factor = std::to_string(std::ceil(gain * 10) / 10);
    factor = "up to " + factor.substr(0, factor.find('.') + 2);
  }
  return invalid("ring(" + std::string(codecs) + ") codes a sum anew at each hop, and " + codec.spec() +
                 " multiplies it by " + factor + " each time; take direct(" + std::string(codecs) +
                 ") or gather");
}

}  // namespace

Result<std::unique_ptr<WakeableReducer>> make_ring_reducer(std::string_view codecs,
                                                           const ReducerOptions& options) {
  ASSIGN_OR_RETURN(const auto rules, CodecRules::parse(codecs));
  RETURN_IF_ERROR(check_for_sums("ring(" + std::string(codecs) + ")", "partial sums", rules, options));
  RETURN_IF_ERROR(check_gain(rules, codecs));
  ASSIGN_OR_RETURN(auto channels, make_channels(codecs, options, {Revert::kExact, Revert::kExact}));
  return std::make_unique<RingReducer>(std::move(channels), options);
}

}  // namespace deltawire
