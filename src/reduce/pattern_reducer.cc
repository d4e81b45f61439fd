#include "reduce/pattern_reducer.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/errors.h"
#include "base/random.h"
#include "base/values.h"
#include "deltawire/spec.h"
#include "reduce/vote.h"
#include "transport/process/machine.h"
#include "wire/hashes.h"

namespace deltawire {

namespace {

// What takes tensors in key-value form.
std::string codecs_for_pairs() {
  std::string names;
  for (const CodecInfo* codec : registered_codecs()) {
    if (!codec->key_value || codec->error_feedback) continue;
    names += (names.empty() ? "" : ", ") + std::string(codec->name);
  }
  return "take a codec that has the form and keeps no residual (" + names +
         "), in the pattern direct or gather";
}

}  // namespace

Status check_tensors(const Bucket& bucket, const Step& step, const PairRules& pairs) {
  std::size_t key_value_tensors = 0;
  for (const Named& tensor : bucket.tensors) {
    const auto named = [&] { return "tensor '" + std::string(tensor.name) + "'"; };
    if (dtype_bytes(tensor.tensor.dtype) == 0) {
      return fail(ErrorCode::kUnsupportedDType,
                  named() + " is of an unknown dtype; give float32, bfloat16 or float16");
    }
    if (!tensor.tensor.has_keys()) continue;
    ++key_value_tensors;
    if (pairs.pattern_takes && pairs.folds) {
      return invalid(named() +
                     " is in key-value form, which can't wait for a later step as a folding revert " +
                     "promises; take the exact revert, which leaves a failed step's input to you");
    }
    if (!pairs.take(tensor, step.number)) {
      return invalid(named() + " is in key-value form, which " + pairs.reducer.spec() + " does not take; " +
                     codecs_for_pairs());
    }
  }
  if (key_value_tensors != bucket.pair_means.size()) {
    return invalid("the bucket has " + std::to_string(key_value_tensors) +
                   " key-value tensors and room for " + std::to_string(bucket.pair_means.size()) +
                   " means; give pair_means one for each");
  }
  return {};
}

namespace {

Status check_idle(const BucketsInFlight& buckets) {
  if (!buckets.step_is_open()) return {};
  return wrong_state("a step is open; finish it first");
}

std::span<const std::unique_ptr<Channel>> saved_of(const PatternInfo& info,
                                                   std::span<const std::unique_ptr<Channel>> channels) {
  return channels.first(std::min(info.channels_saved, channels.size()));
}

}  // namespace

// Before anything happens.
Status PatternReducer::check(const Bucket& bucket, const Step& step, const Transport& transport) {
  constexpr std::uint32_t kMaxBucket = 65535;
  if (step.bucket > kMaxBucket) {
    return invalid("bucket " + std::to_string(step.bucket) + " is beyond 65,535; use larger buckets");
  }
  if (place_.world != 0 && (place_.world != transport.world_size() || place_.rank != transport.rank())) {
    return mismatch("the residuals belong to rank " + std::to_string(place_.rank) + " of " +
                    std::to_string(place_.world) + ", but this is rank " + std::to_string(transport.rank()) +
                    " of " + std::to_string(transport.world_size()) + "; start with a new reducer instead");
  }
  RETURN_IF_ERROR(check_tensors(bucket, step, pair_rules()));
  place_.world = transport.world_size();
  place_.rank = transport.rank();
  return {};
}

Status PatternReducer::begin(const Bucket& bucket, const Step& step, Transport& transport,
                             Deadline deadline) {
  Status begun = or_no_memory("beginning a bucket", [&]() -> Status {
    std::unique_ptr<BucketExchange> exchange = in_flight_.take_spare(bucket.tensors);
    if (exchange == nullptr) exchange = make_bucket();
    RETURN_IF_ERROR(exchange->tensors().check_distinct(bucket.tensors));
    RETURN_IF_ERROR(check(bucket, step, transport));
    transport.arrive(step.number);
    exchange->tensors().look_for_infinities(options_.policy.nonfinite == NonFinite::kPass);
    exchange->open(bucket, step, transport, deadline, 0);
    return in_flight_.start(std::move(exchange));
  });
  if (!begun) return give_up(transport, std::move(begun.error()));
  return {};
}

Result<bool> PatternReducer::advance() {
  if (in_flight_.empty()) return wrong_state("no bucket is in flight; begin one first");
  BucketRun& oldest = in_flight_.oldest().run();
  Result<bool> complete = or_no_memory("decoding a bucket", [&] { return in_flight_.advance(); });
  if (!complete) return give_up(oldest.transport(), std::move(complete.error()));
  return complete;
}

Status PatternReducer::vote_and_drain(BucketExchange& last) {
  BucketRun& run = last.run();
  {
    const Stopwatch timer(run.report(), Stopwatch::Phase::kExchange);
    RETURN_IF_ERROR(vote(run.step(), digest_, run.transport(), run.deadline()));
  }
  // Nobody votes before having received everything, so these sends are over; the waits only collect them. The
  // step counts, and a failure from here on is the next step's.
  in_flight_.drain_finished();
  last.drain();
  return {};
}

Result<Report> PatternReducer::finish() {
  while (true) {
    ASSIGN_OR_RETURN(const bool complete, advance());
    if (complete) break;
  }
  BucketExchange& bucket = in_flight_.oldest();
  BucketRun& run = bucket.run();
  if (Status seen = bucket.tensors().examine(); !seen) {
    const Error& found = seen.error();
    const bool is_of_part = found.suspect != kNoSuspect;  // of a message that a device has decoded
    Error told = is_of_part ? blame(found.suspect, found, run.transport().names()).value() : found;
    return give_up(run.transport(), std::move(told));
  }
  digest_ = bucket.tensors().digest(digest_);
  run.report().digest = digest_;
  // Equal on all ranks, as the means are.
  Status fits = or_no_memory("rounding means", [&] { return bucket.tensors().check_range(); });
  const bool passes = options_.policy.nonfinite == NonFinite::kPass;
  if (!fits && !passes) return give_up(run.transport(), std::move(fits.error()));
  if (passes) finite_ = finite_ && bucket.tensors().finite() && fits.has_value();
  run.report().finite = finite_;
  const bool last = run.step().last;
  Status ended = or_no_memory("ending a bucket", [&]() -> Status {
    // All that is needed after the vote: by then the others commit.
    in_flight_.reserve_finish();
    run.report().last_committed_step = run.transport().last_commit().step;
    return last ? vote_and_drain(bucket) : Status{};
  });
  if (!ended) return give_up(run.transport(), std::move(ended.error()));
  if (last) run.report().last_committed_step = run.step().number;
  if (!last) bucket.await_reads();
  bucket.tensors().publish();
  bucket.give_back();
  Report report = run.report();
  in_flight_.finish_oldest();
  if (last) {
    end_step();
    report.flow = channel(0).flow();
  }
  return report;
}

void PatternReducer::end_step() noexcept {
  assert(in_flight_.empty() && place_.world > 0);
  // A step that is not finite is given to the caller, but has not been: with NonFinite::kPass channels revert
  // exactly.
  for (const auto& channel : channels_) finite_ ? channel->commit() : channel->revert();
  finite_ ? commit_own() : revert_own();
  digest_ = 0;
  finite_ = true;
  place_.stands = true;
  in_flight_.end_step();
  pool_.end_step();
}

// The transport lets go of the buffers when a wait has failed: so abort, wait for everything, then free.
tl::unexpected<Error> PatternReducer::give_up(Transport& transport, Error error) noexcept {
  if (error.suspect == kNoSuspect) error.suspect = transport.rank();
  transport.abort(error);
  in_flight_.drain_all();
  in_flight_.drop_all();
  pool_.clear();  // first: to revert takes memory, too
  for (const auto& channel : channels_) channel->revert();
  revert_own();
  digest_ = 0;
  finite_ = true;
  // The first step has failed, so there has been none: the state is that of a rank which has not begun it, as
  // others may be. Residuals that a failed step folds stay with their rank.
  if (!place_.stands && options_.revert != Revert::kFold) take_place(0, 0);
  (void)or_no_memory("saying which step stands", [&]() -> Status {
    say_which_step_stands(error, transport);
    return {};
  });
  return tl::unexpected<Error>(std::move(error));
}

Result<std::vector<std::byte>> PatternReducer::save() const {
  return or_no_memory("saving the residuals", [&]() -> Result<std::vector<std::byte>> {
    ASSIGN_OR_RETURN(const auto states, save_channels(saved_of(info_, channels_)));
    return pack_reducer_state({info_.state_magic, place_.world, place_.rank}, states);
  });
}

Status PatternReducer::load(Bytes state) {
  return or_no_memory("loading the residuals", [&]() -> Status {
    RETURN_IF_ERROR(check_idle(in_flight_));
    const auto saved = saved_of(info_, channels_);
    ASSIGN_OR_RETURN(const ReducerState parts, unpack_reducer_state(state, info_.state_magic, saved.size()));
    Status loaded = load_channels(saved, [&](std::size_t i) { return saved[i]->load(parts.channels[i]); });
    if (loaded) take_place(parts.world, parts.rank);
    return loaded;
  });
}

Status PatternReducer::load_resized(const SavedRanks& saved) {
  return or_no_memory("loading the residuals", [&]() -> Status {
    RETURN_IF_ERROR(check_idle(in_flight_));
    const auto own = saved_of(info_, channels_);
    ASSIGN_OR_RETURN(const SavedChannels channels, unpack_saved_ranks(saved, info_.state_magic, own.size()));
    if (is_unchanged(saved)) {
      return PatternReducer::load(saved.states[static_cast<std::size_t>(saved.rank)]);
    }
    Status loaded = load_channels(own, [&](std::size_t i) {
      const ResizedChannel resized = resized_channel(i, saved, channels);
      return own[i]->load_weighted(resized.states, {saved.tensors, resized.parts});
    });
    if (loaded) take_place(saved.world, saved.rank);
    return loaded;
  });
}

void PatternReducer::take_place(int world, int rank) noexcept {
  assert(world == 0 ? rank == 0 : rank >= 0 && rank < world);
  place_ = {world, rank, world != 0};
  in_flight_.drop_spares();  // their plans are for the rank and the world before
}

std::vector<TensorUse> PatternReducer::explain(std::span<const Named> tensors, std::uint64_t step) const {
  std::vector<TensorUse> uses;
  std::unordered_map<std::uint64_t, std::size_t> by_hash;
  for (const Named& tensor : tensors) {
    by_hash.emplace(name_hash(tensor), uses.size());
    TensorUse& use = uses.emplace_back();
    use.plan = channel(0).plan(tensor, step);
    use.takes_pairs = pair_rules().take(tensor, step);
    if (use.plan.changes_at != kNoStep) use.next_codec = channel(0).plan(tensor, use.plan.changes_at).codec;
  }
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    for (const PartUse& part : channel(c).last_step()) {
      const auto found = by_hash.find(part.name_hash);
      if (found == by_hash.end()) continue;
      const std::uint64_t copies = copies_sent(c, tensors[found->second], part);
      TensorUse& use = uses[found->second];
      use.bytes_sent += copies * part.payload_bytes;
      use.raw_bytes += copies * part.elements * dtype_bytes(tensors[found->second].tensor.dtype);
      use.residual_bytes += part.residual_bytes;
      use.momentum_bytes += part.momentum_bytes;
      use.residual_norm += sum_of_squares(channel(c).residual(tensors[found->second].name, part.first));
    }
  }
  for (TensorUse& use : uses) use.residual_norm = std::sqrt(use.residual_norm);
  return uses;
}

Status PatternReducer::recode(const Spec& spec) {
  return or_no_memory("changing how tensors are coded", [&]() -> Status {
    RETURN_IF_ERROR(check_idle(in_flight_));
    ASSIGN_OR_RETURN(const auto own, Spec::parse(this->spec()));
    if (spec.pattern != own.pattern) {
      return invalid("'" + this->spec() + "' can't become '" + spec.text + "', which has another pattern");
    }
    for (MeteredChannel* const channel : by_spec_) {
      RETURN_IF_ERROR(channel->recode(spec.codecs));
    }
    return {};
  });
}

std::uint64_t channel_seed(std::uint64_t seed, std::size_t channel) noexcept {
  return CounterRng(seed).at(channel);
}

Result<MeteredChannel*> add_channel(Channels& channels, std::string_view codecs,
                                    const ReducerOptions& options, Revert revert, bool means) {
  const bool is_first = channels.all.empty();
  const ChannelOptions channel{.policy = options.policy,
                               .revert = revert,
                               .means = means,
                               .seed = channel_seed(options.seed, channels.all.size()),
                               .measure_flow = options.measure_flow && is_first};
  ASSIGN_OR_RETURN(
      auto made, make_metered_channel(codecs, channel, {channels.meter, channels.workers, options.backend}));
  MeteredChannel* const added = made.get();
  channels.all.push_back(std::move(made));
  return added;
}

Result<Channels> make_channels(std::string_view codecs, const ReducerOptions& options,
                               std::initializer_list<Revert> reverts) {
  Channels channels{std::make_shared<MemoryMeter>(),
                    options.threads == 0  ? Workers::of_process()
                    : options.threads > 1 ? std::make_shared<Workers>(options.threads)
                                          : nullptr,
                    {}};
  if (options.revert == Revert::kFold && options.policy.nonfinite == NonFinite::kPass) {
    return invalid(
        "a folding revert can't take back a step that is not finite, as nonfinite=pass promises; take "
        "the exact revert, or let such steps be errors");
  }
  for (const Revert revert : reverts) {
    ASSIGN_OR_RETURN(auto* const made, add_channel(channels, codecs, options, revert, !channels.all.empty()));
    channels.by_spec.push_back(made);
  }
  return channels;
}

Status check_for_sums(const std::string& spec, const std::string& sums, const CodecRules& rules,
                      const ReducerOptions& options) {
  if (options.revert == Revert::kFold) {
    return invalid(spec + " sends " + sums +
                   ", which hold other ranks' gradients, so that a revert can't fold a rank's own; take the "
                   "exact revert, or gather or direct");
  }
  if (!rules.have_feedback()) return {};
  return invalid(spec + " sends " + sums +
                 ", not a rank's gradients, which clip, momentum, masking and decay are for; take gather or "
                 "direct");
}

Result<std::optional<int>> count_parameter(const ParsedSpec& pattern, std::string_view key, int most) {
  const SpecParameter* given = find_parameter(pattern, key);
  if (given == nullptr) return std::nullopt;
  const auto count = parse_number<int>(given->value);
  if (count && *count >= 1 && *count <= most) return count;
  return invalid(std::string(pattern.name) + ": " + std::string(key) + "=" + std::string(given->value) +
                 " must be a whole number from 1 to " + std::to_string(most));
}

}  // namespace deltawire
