#include "reduce/pattern_reducer.h"

#include <unordered_set>
#include <utility>

#include "reduce/reducer_state.h"
#include "reduce/vote.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kMaxBucket = 8190;

Status check_form(const Named& tensor, bool is_pairs) {
  const std::string name(tensor.name);
  if (tensor.tensor.dtype != DType::kF32) {
    return fail(ErrorCode::kUnsupportedDType, "tensor '" + name + "' is " +
                                                  std::string(dtype_name(tensor.tensor.dtype)) +
                                                  ", but only float32 can be reduced; convert it");
  }
  if (tensor.tensor.has_keys() && !is_pairs) {
    return fail(
        ErrorCode::kInvalidArgument,
        "tensor '" + name + "' is in key-value form, whose mean has other keys; use all_reduce_pairs");
  }
  return {};
}

}  // namespace

std::string PatternReducer::spec() const {
  return std::string(pattern_.name) + "(" + channel(0).codec().spec() + ")";
}

Status PatternReducer::check(std::span<const Named> tensors, bool is_pairs, const Step& step,
                             const Transport& transport) {
  if (step.bucket > kMaxBucket) {
    return fail(ErrorCode::kInvalidArgument,
                "bucket " + std::to_string(step.bucket) + " is beyond 8,190; use larger buckets");
  }
  if (world_ != 0 && (world_ != transport.world_size() || rank_ != transport.rank())) {
    return fail(ErrorCode::kMismatch,
                "the residuals belong to rank " + std::to_string(rank_) + " of " + std::to_string(world_) +
                    ", but this is rank " + std::to_string(transport.rank()) + " of " +
                    std::to_string(transport.world_size()) + "; start with a new reducer instead");
  }
  std::unordered_set<std::string_view> names;
  for (const Named& tensor : tensors) {
    if (Status form = check_form(tensor, is_pairs); !form) return form;
    if (!names.insert(tensor.name).second) {
      return fail(ErrorCode::kInvalidArgument, "tensor '" + std::string(tensor.name) +
                                                   "' stands twice in the bucket; names must be unique");
    }
  }
  world_ = transport.world_size();
  rank_ = transport.rank();
  return {};
}

std::unique_ptr<Bucket> PatternReducer::take_spare() {
  if (spare_.empty()) return make_bucket();
  std::unique_ptr<Bucket> bucket = std::move(spare_.back());
  spare_.pop_back();
  return bucket;
}

Status PatternReducer::begin(std::span<const Named> tensors, const Step& step, Transport& transport,
                             Deadline deadline) {
  return begin_bucket(tensors, nullptr, step, transport, deadline);
}

Status PatternReducer::begin_bucket(std::span<const Named> tensors, std::vector<Pairs>* pairs,
                                    const Step& step, Transport& transport, Deadline deadline) {
  if (Status legal = check(tensors, pairs != nullptr, step, transport); !legal) {
    return give_up(transport, legal.error());
  }
  std::unique_ptr<Bucket> bucket = take_spare();
  bucket->open(tensors, step, transport, deadline);
  bucket->pairs = pairs;
  if (pairs == nullptr) bucket->take_staging();
  plan(*bucket);
  buckets_.push_back(std::move(bucket));
  if (Status started = start(*buckets_.back()); !started) return give_up(transport, started.error());
  return {};
}

// After the last bucket: vote, then collect the sends.
Status PatternReducer::end_step(Bucket& last) {
  {
    const Stopwatch timer(last.report.exchange_seconds);
    if (Status s = vote(last.step, digest_, *last.transport, last.deadline); !s) return s;
  }
  // Nobody votes before having received all, so these sends are over; the waits only collect them.
  for (const auto& earlier : finished_) {
    for (Handle& handle : earlier->sends) {
      if (const auto sent = wait(*earlier, handle); !sent) return forward_error(sent);
    }
  }
  for (Handle& handle : last.sends) {
    if (const auto sent = wait(last, handle); !sent) return forward_error(sent);
  }
  return {};
}

Result<Report> PatternReducer::finish() {
  if (buckets_.empty()) return fail(ErrorCode::kState, "no bucket is in flight; begin one first");
  Bucket& bucket = *buckets_.front();
  const Result<std::uint64_t> digest = complete(bucket, digest_);
  if (!digest) return give_up(*bucket.transport, digest.error());
  digest_ = *digest;
  bucket.report.digest = digest_;
  const bool last = bucket.step.last;
  if (last) {
    if (Status ended = end_step(bucket); !ended) return give_up(*bucket.transport, ended.error());
  }
  bucket.publish();
  const Report report = bucket.report;
  finished_.push_back(std::move(buckets_.front()));
  buckets_.pop_front();
  if (last) {
    for (const auto& each : channels_) each->commit();
    digest_ = 0;
    for (auto& done : finished_) spare_.push_back(std::move(done));
    finished_.clear();
  }
  return report;
}

void PatternReducer::drain(Bucket& bucket) {
  const auto end = [&](Handle& handle) {
    if (handle != Handle::kNone) (void)wait(bucket, handle);
  };
  for (Incoming& message : bucket.incoming) end(message.handle);
  for (Handle& handle : bucket.sends) end(handle);
}

// The transport lets go of the buffers when a wait has failed: so abort, wait for everything, then free.
tl::unexpected<Error> PatternReducer::give_up(Transport& transport, Error error) {
  if (error.suspect == kNoSuspect) error.suspect = transport.rank();
  transport.abort(error);
  for (const auto& bucket : buckets_) drain(*bucket);
  for (const auto& bucket : finished_) drain(*bucket);
  revert();
  return tl::unexpected<Error>(std::move(error));
}

void PatternReducer::revert() noexcept {
  for (const auto& each : channels_) each->revert();
  digest_ = 0;
  buckets_.clear();
  finished_.clear();
}

Result<std::vector<std::byte>> PatternReducer::save() const {
  std::vector<std::vector<std::byte>> states;
  for (const auto& each : channels_) {
    auto state = each->save();
    if (!state) return forward_error(state);
    states.push_back(std::move(*state));
  }
  return pack_reducer_state({pattern_.state_magic, world_, rank_}, states);
}

Status PatternReducer::load(Bytes state) {
  if (!buckets_.empty() || !finished_.empty()) {
    return fail(ErrorCode::kState, "a step is open; finish or revert it before loading");
  }
  const Result<ReducerState> parts = unpack_reducer_state(state, pattern_.state_magic, channels_.size());
  if (!parts) return forward_error(parts);
  std::vector<std::vector<std::byte>> before;
  for (const auto& each : channels_) {
    auto saved = each->save();
    if (!saved) return forward_error(saved);
    before.push_back(std::move(*saved));
  }
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    Status loaded = channels_[i]->load(parts->channels[i]);
    if (loaded) continue;
    for (std::size_t k = 0; k < i; ++k) (void)channels_[k]->load(before[k]);  // all or nothing
    return loaded;
  }
  world_ = parts->world;
  rank_ = parts->rank;
  return {};
}

}  // namespace deltawire
