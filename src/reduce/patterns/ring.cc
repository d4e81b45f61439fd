// `ring`: GComp's exchange (section 6.2, figure 8). The tensors of all ranks, scaled by 1/N, are summed
// partition by partition while they go round the ring: each hop decodes the neighbour's partial sum, adds the
// own values, encodes and sends on. The owner of a partition, the last on its way, encodes the mean once,
// applies its own bytes, and these go round unchanged, so that the replicas are bit-equal. Each rank sends
// 2 (N-1)/N of the tensors' compressed size. The scale comes first, so that partial sums compare rightly
// with what the optimizer can still see (significance).
//
// Partitions travel as messages of bounded size: while one is coded, others are on the wire.
//
//   start: post receives, encode and send the partition that begins here
//   move:  one arrival: add, encode and send on; or a mean: decode and pass on
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/float16.h"
#include "base/float_environment.h"
#include "channel/codec_rules.h"
#include "reduce/bucket_messages.h"
#include "reduce/pattern_reducer.h"
#include "reduce/patterns/patterns.h"
#include "reduce/patterns/ring_plan.h"

namespace deltawire {
namespace {

class RingExchange final : public BucketExchange {
 public:
  RingExchange(BufferPool& pool, Channel& scatter, Channel& gather)
      : messages_(pool, run_),
        tensors_(pool),
        scatter_{.channel = scatter, .slots_from = 0},
        gather_{.channel = gather, .slots_from = 1} {}

  void open(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline,
            std::uint16_t round) override;
  Status start(bool is_oldest) override;
  Result<Progress> move(bool is_oldest) override;
  void give_back() noexcept override;
  void drain() noexcept override { messages_.drain(); }
  BucketRun& run() noexcept override { return run_; }
  BucketTensors& tensors() noexcept override { return tensors_; }

 private:
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

  void restart(Phase& phase);
  int left() const noexcept { return (run_.rank() + run_.world() - 1) % run_.world(); }
  int right() const noexcept { return (run_.rank() + 1) % run_.world(); }
  std::uint16_t stage_of(const Phase& phase) const noexcept {
    return &phase == &scatter_ ? kFirstStage : kSecondStage;
  }
  Incoming& slot(const Phase& phase, std::size_t stop) {
    return messages_.incoming(phase.slots_from + 2 * (stop % phase.forwards.size()));
  }
  void post_receives(Phase& phase);
  Handle awaited_by(Phase& phase);
  void load(const RingMessage& message);
  Status send_sum(const RingMessage& message);
  Status share_mean(const RingMessage& message);
  Status add_arrival();
  Status apply_arrival();

  BucketRun run_;
  BucketMessages messages_;
  BucketTensors tensors_;
  RingPlan plan_;
  Phase scatter_;
  Phase gather_;
};

void RingExchange::open(const Bucket& bucket, const Step& step, Transport& transport, Deadline deadline,
                        std::uint16_t round) {
  run_.open(step, transport, deadline, round);
  const bool is_planned = tensors_.assign(bucket);
  tensors_.stage();
  if (is_planned) {
    plan_.place(tensors_.all(), tensors_.means());
  } else {
    plan_.cut(tensors_.all(), tensors_.means(), run_.rank(), run_.world());
  }
  messages_.open(0);
  run_.report().element_count = tensors_.elements();
  // Every partition leaves twice, but this rank's not as a sum, and the right neighbour's not as a mean.
  run_.report().raw_bytes =
      2 * tensors_.raw_bytes() - plan_.raw_bytes_of(run_.rank()) - plan_.raw_bytes_of(right());
  scatter_.stops = plan_.scatter_arrivals();
  gather_.stops = plan_.gather_arrivals();
  restart(scatter_);
  restart(gather_);
}

void RingExchange::restart(Phase& phase) {
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

// As many as there are free buffers; a buffer is free when its message was decoded and passed on.
void RingExchange::post_receives(Phase& phase) {
  while (phase.posted < phase.stops.size() && phase.posted < phase.taken + phase.forwards.size()) {
    Handle& forward = phase.forwards[phase.posted % phase.forwards.size()];
    if (forward != Handle::kNone && !run_.transport().done(forward)) return;
    forward = Handle::kNone;
    messages_.post(slot(phase, phase.posted), left(), stage_of(phase), phase.longest);
    ++phase.posted;
  }
}

// The caller's values, scaled, to staging memory.
void RingExchange::load(const RingMessage& message) {
  const Stopwatch timer(run_.report(), Stopwatch::Phase::kEncode);
  const FloatEnvironment environment;
  const float scale = FloatEnvironment::pinned(run_.world_scale());
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

Status RingExchange::send_sum(const RingMessage& message) {
  const auto pieces = run_.encode(scatter_.channel, message.layout(), kFirstStage);
  if (!pieces) return forward_error(pieces);
  messages_.send(right(), kFirstStage, *pieces);
  return {};
}

Status RingExchange::share_mean(const RingMessage& message) {
  const auto pieces = run_.encode(gather_.channel, message.layout(), kSecondStage);
  if (!pieces) return forward_error(pieces);
  if (run_.world() > 1) messages_.send(right(), kSecondStage, *pieces);
  // The owner applies the bytes that the others get, not the mean that it knows better.
  return run_.decode(gather_.channel, *pieces, message.layout(), {run_.rank(), run_.rank(), kSecondStage},
                     Into::kOverwrite, 1.0F);
}

Status RingExchange::start(bool) {
  post_receives(scatter_);
  post_receives(gather_);
  for (const RingMessage& message : plan_.partition(left())) {
    load(message);
    const Status sent = run_.world() == 1 ? share_mean(message) : send_sum(message);
    if (!sent) return sent;
  }
  return {};
}

Status RingExchange::add_arrival() {
  const RingStop stop = scatter_.stops[scatter_.taken];
  const RingMessage& message = plan_.message(stop);
  const Result<Bytes> bytes = messages_.take(slot(scatter_, scatter_.taken));
  if (!bytes) return forward_error(bytes);
  load(message);
  Status added = run_.decode(scatter_.channel, std::span(&*bytes, 1), message.layout(),
                             {left(), left(), kFirstStage}, Into::kAccumulate, 1.0F);
  if (!added) return added;
  slot(scatter_, scatter_.taken).buffer.reset();
  ++scatter_.taken;
  return stop.last_hop ? share_mean(message) : send_sum(message);
}

// Decoded first, then passed on: so the rank that spoils bytes is named, not one that handed them on.
Status RingExchange::apply_arrival() {
  const RingStop stop = gather_.stops[gather_.taken];
  const Result<Bytes> bytes = messages_.take(slot(gather_, gather_.taken));
  if (!bytes) return forward_error(bytes);
  Status applied = run_.decode(gather_.channel, std::span(&*bytes, 1), plan_.message(stop).layout(),
                               {left(), stop.partition, kSecondStage}, Into::kOverwrite, 1.0F);
  if (!applied) return applied;
  if (!stop.last_hop) {
    gather_.forwards[gather_.taken % gather_.forwards.size()] =
        messages_.send(right(), kSecondStage, std::span(&*bytes, 1));
  } else {
    slot(gather_, gather_.taken).buffer.reset();
  }
  ++gather_.taken;
  return {};
}

// What keeps the phase from going on: the next message, or that its buffer is still being passed on.
Handle RingExchange::awaited_by(Phase& phase) {
  if (phase.taken < phase.posted) return slot(phase, phase.taken).handle;
  return phase.forwards[phase.posted % phase.forwards.size()];
}

// A rank's own means leave before those that it passes on: the order that the right neighbour expects.
Result<Progress> RingExchange::move(bool) {
  post_receives(scatter_);
  post_receives(gather_);
  const bool scattering = scatter_.taken < scatter_.stops.size();
  Phase& phase = scattering ? scatter_ : gather_;
  if (phase.taken == phase.stops.size()) return Progress::done();
  const bool has_come = phase.taken < phase.posted && messages_.arrived(slot(phase, phase.taken));
  if (!has_come) return Progress::waits(awaited_by(phase));
  const Status status = scattering ? add_arrival() : apply_arrival();
  if (!status) return forward_error(status);
  return Progress::moved();
}

// Buffers that are still being passed on stay until the step ends.
void RingExchange::give_back() noexcept {
  for (const Handle forward : gather_.forwards) {
    if (!run_.transport().done(forward)) return;
  }
  tensors_.give_back();
  messages_.give_back();
}

class RingReducer final : public PatternReducer {
 public:
  RingReducer(Channels channels, const ReducerOptions& options)
      : PatternReducer({"ring", "DWRING\r\n", false}, std::move(channels), options) {}

  Status mask_sent(std::string_view, std::span<float>) const override {
    return fail(ErrorCode::kInvalidArgument,
                "what a rank sends in a ring is not its own, so its momentum can't be masked by it; take "
                "the pattern gather or direct");
  }

 private:
  std::unique_ptr<BucketExchange> make_bucket() override {
    return std::make_unique<RingExchange>(pool(), channel(0), channel(1));
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
  return fail(ErrorCode::kInvalidArgument, "ring(" + std::string(codecs) +
                                               ") codes a sum anew at each hop, and " + codec.spec() +
                                               " multiplies it by " + factor + " each time; take direct(" +
                                               std::string(codecs) + ") or gather");
}

}  // namespace

Result<std::unique_ptr<WakeableReducer>> make_ring_reducer(std::string_view codecs,
                                                           const ReducerOptions& options) {
  const auto rules = CodecRules::parse(codecs);
  if (!rules) return forward_error(rules);
  if (options.revert == Revert::kFold) {
    return fail(ErrorCode::kInvalidArgument,
                "ring(" + std::string(codecs) +
                    ") sends partial sums, which hold other ranks' gradients, so that a revert can't fold a "
                    "rank's own; take the exact revert, or gather or direct");
  }
  if (rules->have_feedback()) {
    return fail(ErrorCode::kInvalidArgument,
                "ring(" + std::string(codecs) +
                    ") sends partial sums, not a rank's gradients, which clip, "
                    "momentum, masking and decay are for; take gather or direct");
  }
  if (Status bounded = check_gain(*rules, codecs); !bounded) return forward_error(bounded);
  auto channels = make_channels(codecs, options, {Revert::kExact, Revert::kExact});
  if (!channels) return forward_error(channels);
  return std::make_unique<RingReducer>(std::move(*channels), options);
}

}  // namespace deltawire
