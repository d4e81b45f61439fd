#include "reduce/pattern_reducer.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/no_memory.h"
#include "base/random.h"
#include "channel/metered_channel.h"
#include "reduce/reducer_state.h"
#include "reduce/vote.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kMaxBucket = 65535;

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

std::string PatternReducer::spec() const {
  return std::string(info_.name) + "(" + channel(0).spec() + ")";
}

// What can be checked before anything happens.
Status PatternReducer::check(const Bucket& bucket, const Step& step, const Transport& transport, bool known) {
  if (step.bucket > kMaxBucket) {
    return fail(ErrorCode::kInvalidArgument,
                "bucket " + std::to_string(step.bucket) + " is beyond 65,535; use larger buckets");
  }
  if (world_ != 0 && (world_ != transport.world_size() || rank_ != transport.rank())) {
    return fail(ErrorCode::kMismatch,
                "the residuals belong to rank " + std::to_string(rank_) + " of " + std::to_string(world_) +
                    ", but this is rank " + std::to_string(transport.rank()) + " of " +
                    std::to_string(transport.world_size()) + "; start with a new reducer instead");
  }
  if (Status legal = check_tensors(bucket, step, known); !legal) return legal;
  world_ = transport.world_size();
  rank_ = transport.rank();
  return {};
}

Status PatternReducer::check_tensors(const Bucket& bucket, const Step& step, bool known) const {
  std::unordered_set<std::string_view> names;
  std::size_t key_value_tensors = 0;
  for (const Named& tensor : bucket.tensors) {
    const auto named = [&] { return "tensor '" + std::string(tensor.name) + "'"; };
    if (dtype_bytes(tensor.tensor.dtype) == 0) {
      return fail(ErrorCode::kUnsupportedDType,
                  named() + " is of an unknown dtype; give float32, bfloat16 or float16");
    }
    if (!known && !names.insert(tensor.name).second) {
      return fail(ErrorCode::kInvalidArgument, named() + " stands twice in the bucket; names must be unique");
    }
    if (!tensor.tensor.has_keys()) continue;
    ++key_value_tensors;
    if (info_.key_value && folds_) {
      return fail(ErrorCode::kInvalidArgument,
                  named() + " is in key-value form, which can't wait for a later step as a folding revert " +
                      "promises; take the exact revert, which leaves a failed step's input to you");
    }
    if (!takes_pairs(tensor, step.number)) {
      return fail(ErrorCode::kInvalidArgument, named() + " is in key-value form, which " + spec() +
                                                   " does not take; " + codecs_for_pairs());
    }
  }
  if (key_value_tensors != bucket.pair_means.size()) {
    return fail(ErrorCode::kInvalidArgument,
                "the bucket has " + std::to_string(key_value_tensors) + " key-value tensors and room for " +
                    std::to_string(bucket.pair_means.size()) + " means; give pair_means one for each");
  }
  return {};
}

std::unique_ptr<BucketExchange> PatternReducer::obtain_bucket(std::span<const Named> tensors) {
  if (spare_.empty()) return make_bucket();
  const auto same = std::ranges::find_if(spare_, [&](const auto& spare) { return spare->had(tensors); });
  if (same != spare_.end()) std::swap(*same, spare_.back());
  std::unique_ptr<BucketExchange> bucket = std::move(spare_.back());
  spare_.pop_back();
  return bucket;
}

Status PatternReducer::begin(const Bucket& bucket, const Step& step, Transport& transport,
                             Deadline deadline) {
  Status begun = or_no_memory("beginning a bucket", [&]() -> Status {
    std::unique_ptr<BucketExchange> exchange = obtain_bucket(bucket.tensors);
    const bool known = exchange->had(bucket.tensors);
    if (Status legal = check(bucket, step, transport, known); !legal) return legal;
    transport.arrive(step.number);
    exchange->open(bucket, step, transport, deadline);
    buckets_.push_back(std::move(exchange));
    // A bucket waits for one message of each rank at most.
    awaited_.reserve(buckets_.size() * static_cast<std::size_t>(world_));
    if (buckets_.size() == 1) buckets_.back()->go_first();
    return buckets_.back()->start();
  });
  if (!begun) return give_up(transport, std::move(begun.error()));
  return {};
}

// Moves the oldest bucket that can be moved; false when all of them wait for awaited_.
Result<bool> PatternReducer::move_one() {
  awaited_.clear();
  bool is_first = true;
  for (const auto& bucket : buckets_) {
    if (bucket->complete()) continue;
    if (std::exchange(is_first, false)) bucket->go_first();
    const Result<Progress> progress = bucket->move();
    if (!progress) return forward_error(progress);
    if (progress->kind == Progress::Kind::kDone) bucket->set_complete();
    if (progress->kind != Progress::Kind::kWaits) return true;
    if (progress->handle != Handle::kNone) awaited_.push_back(progress->handle);
    bucket->more_awaited(awaited_);
  }
  return false;
}

// The time counts for the oldest bucket; it ends before the bucket can.
Status PatternReducer::wait_for_any(BucketExchange& oldest) {
  const Stopwatch timer(oldest.report(), Stopwatch::Phase::kExchange);
  Status ended = oldest.transport().wait_any(awaited_, oldest.deadline());
  // A rank that came late was waited for: what the buckets may take counts from its arrival.
  if (ended && Clock::now() >= oldest.deadline()) {
    for (const auto& bucket : buckets_) bucket->restart_clock();
  }
  return ended;
}

Result<bool> PatternReducer::advance() {
  if (buckets_.empty()) return fail(ErrorCode::kState, "no bucket is in flight; begin one first");
  BucketExchange& oldest = *buckets_.front();
  Result<bool> complete = or_no_memory("decoding a bucket", [&] { return work_on(oldest); });
  if (!complete) return give_up(oldest.transport(), std::move(complete.error()));
  return complete;
}

Result<bool> PatternReducer::work_on(BucketExchange& oldest) {
  bool waited = false;
  while (!oldest.complete()) {
    const Result<bool> moved = move_one();
    if (!moved) return forward_error(moved);
    if (*moved) continue;
    if (waited) return false;
    const Status ended = wait_for_any(oldest);
    if (!ended) return forward_error(ended);
    waited = true;
  }
  return true;
}

Status PatternReducer::vote_and_collect(BucketExchange& last) {
  {
    const Stopwatch timer(last.report(), Stopwatch::Phase::kExchange);
    if (Status s = vote(last.step(), digest_, last.transport(), last.deadline()); !s) return s;
  }
  // Nobody votes before having received all, so these sends are over; the waits only collect them. The step
  // counts, and a failure that comes now is the next step's.
  for (const auto& earlier : finished_) earlier->drain();
  last.drain();
  return {};
}

Result<Report> PatternReducer::finish() {
  while (true) {
    const Result<bool> complete = advance();
    if (!complete) return forward_error(complete);
    if (*complete) break;
  }
  BucketExchange& bucket = *buckets_.front();
  digest_ = bucket.digest(digest_);
  bucket.report().digest = digest_;
  // Ranks have the same means, and so come to the same.
  Status fits = or_no_memory("rounding means", [&] { return bucket.check_range(); });
  if (!fits && !passes_nonfinite_) return give_up(bucket.transport(), std::move(fits.error()));
  if (passes_nonfinite_) finite_ = finite_ && bucket.finite() && fits.has_value();
  bucket.report().finite = finite_;
  const bool last = bucket.step().last;
  Status ended = or_no_memory("ending a bucket", [&]() -> Status {
    // All that is needed after the vote: by then the others commit.
    finished_.reserve(finished_.size() + 1);
    spare_.reserve(spare_.size() + finished_.size() + 1);
    bucket.report().last_committed_step = bucket.transport().last_commit().step;
    return last ? vote_and_collect(bucket) : Status{};
  });
  if (!ended) return give_up(bucket.transport(), std::move(ended.error()));
  if (last) bucket.report().last_committed_step = bucket.step().number;
  bucket.publish();
  bucket.give_back();
  const Report report = bucket.report();
  finished_.push_back(std::move(buckets_.front()));
  buckets_.erase(buckets_.begin());
  if (last) {
    // Such a step is handed over, but has not been: with NonFinite::kPass channels revert exactly.
    for (const auto& channel : channels_) finite_ ? channel->commit() : channel->revert();
    finite_ ? commit_own() : revert_own();
    digest_ = 0;
    finite_ = true;
    for (auto& done : finished_) {
      done->give_back();
      spare_.push_back(std::move(done));
    }
    finished_.clear();
    pool_.end_step();
  }
  return report;
}

// The transport lets go of the buffers when a wait has failed: so abort, wait for everything, then free.
tl::unexpected<Error> PatternReducer::give_up(Transport& transport, Error error) noexcept {
  if (error.suspect == kNoSuspect) error.suspect = transport.rank();
  transport.abort(error);
  for (const auto& bucket : buckets_) bucket->drain();
  for (const auto& bucket : finished_) bucket->drain();
  revert();
  (void)or_no_memory("saying which step stands", [&]() -> Status {
    say_which_step_stands(error, transport);
    return {};
  });
  return tl::unexpected<Error>(std::move(error));
}

void PatternReducer::revert() noexcept {
  for (const auto& bucket : buckets_) bucket->keep_unsent();
  finite_ = true;
  buckets_.clear();
  finished_.clear();
  pool_.clear();  // first: to take things back takes memory, too
  for (const auto& channel : channels_) channel->revert();
  revert_own();
  digest_ = 0;
}

// The transport has failed: so the bucket is encoded, and taken back.
void PatternReducer::keep(const Bucket& bucket, const Step& step, Transport& transport) noexcept {
  if (folds_ && begin(bucket, step, transport, Clock::now())) (void)finish();
}

Result<std::vector<std::byte>> PatternReducer::save() const {
  return or_no_memory("saving the residuals", [&] { return save_all(); });
}

Status PatternReducer::load(Bytes state) {
  return or_no_memory("loading the residuals", [&] { return load_all(state); });
}

Result<std::vector<std::byte>> PatternReducer::save_all() const {
  std::vector<std::vector<std::byte>> states;
  for (const auto& each : channels_) {
    auto state = each->save();
    if (!state) return forward_error(state);
    states.push_back(std::move(*state));
  }
  return pack_reducer_state({info_.state_magic, world_, rank_}, states);
}

Status PatternReducer::load_all(Bytes state) {
  if (!buckets_.empty() || !finished_.empty()) {
    return fail(ErrorCode::kState, "a step is open; finish it before loading");
  }
  const Result<ReducerState> parts = unpack_reducer_state(state, info_.state_magic, channels_.size());
  if (!parts) return forward_error(parts);
  Status loaded = load_channels([&](std::size_t i) { return channels_[i]->load(parts->channels[i]); });
  if (loaded) take_place(parts->world, parts->rank);
  return loaded;
}

Status PatternReducer::load_channels(const std::function<Status(std::size_t)>& load_channel) {
  std::vector<std::vector<std::byte>> before;
  for (const auto& each : channels_) {
    auto saved = each->save();
    if (!saved) return forward_error(saved);
    before.push_back(std::move(*saved));
  }
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    Status loaded = load_channel(i);
    if (loaded) continue;
    for (std::size_t k = 0; k < i; ++k) (void)channels_[k]->load(before[k]);  // all or nothing
    return loaded;
  }
  return {};
}

void PatternReducer::take_place(int world, int rank) noexcept {
  world_ = world;
  rank_ = rank;
  spare_.clear();  // cut for the rank and the world before
}

Status PatternReducer::load_resized(const SavedRanks& saved) {
  return or_no_memory("loading the residuals", [&] { return load_all_resized(saved); });
}

Status PatternReducer::load_all_resized(const SavedRanks& saved) {
  if (!buckets_.empty() || !finished_.empty()) {
    return fail(ErrorCode::kState, "a step is open; finish it before loading");
  }
  const Result<SavedChannels> channels = unpack_saved_ranks(saved, info_.state_magic, channels_.size());
  if (!channels) return forward_error(channels);
  if (saved.states.size() == static_cast<std::size_t>(saved.world)) {
    return load_all(saved.states[static_cast<std::size_t>(saved.rank)]);
  }
  Status loaded = load_channels([&](std::size_t i) {
    const ChannelShares shares = shares_of(i, saved, *channels);
    return channels_[i]->load_shares(shares.shares, {saved.tensors, shares.parts});
  });
  if (loaded) take_place(saved.world, saved.rank);
  return loaded;
}

std::vector<TensorUse> PatternReducer::explain(std::span<const Named> tensors, std::uint64_t step) const {
  std::vector<TensorUse> uses;
  std::unordered_map<std::uint64_t, std::size_t> by_hash;
  for (const Named& tensor : tensors) {
    by_hash.emplace(name_hash(tensor), uses.size());
    TensorUse& use = uses.emplace_back();
    use.plan = channel(0).plan(tensor, step);
    use.takes_pairs = takes_pairs(tensor, step);
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

Memory PatternReducer::memory() const noexcept {
  return {meter_->held(MemoryMeter::Use::kResiduals), meter_->held(MemoryMeter::Use::kStaging),
          meter_->held(MemoryMeter::Use::kMessages), meter_->peak()};
}

std::uint64_t channel_seed(std::uint64_t seed, std::size_t channel) noexcept {
  return CounterRng(seed).at(channel);
}

Result<Channels> make_channels(std::string_view codecs, const ReducerOptions& options,
                               std::initializer_list<Revert> reverts) {
  Channels channels{std::make_shared<MemoryMeter>(), {}};
  const auto workers = options.threads == 0  ? Workers::of_process()
                       : options.threads > 1 ? std::make_shared<Workers>(options.threads)
                                             : nullptr;
  if (options.revert == Revert::kFold && options.policy.nonfinite == NonFinite::kPass) {
    return fail(
        ErrorCode::kInvalidArgument,
        "a folding revert can't take back a step that is not finite, as nonfinite=pass promises; take "
        "the exact revert, or let such steps be errors");
  }
  for (const Revert revert : reverts) {
    const std::uint64_t seed = channel_seed(options.seed, channels.all.size());
    const ChannelOptions channel{
        .policy = options.policy, .revert = revert, .means = !channels.all.empty(), .seed = seed};
    auto made = make_metered_channel(codecs, channel, {channels.meter, workers});
    if (!made) return forward_error(made);
    channels.all.push_back(std::move(*made));
  }
  return channels;
}

}  // namespace deltawire
