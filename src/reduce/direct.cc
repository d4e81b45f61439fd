// `direct`: each part has one owner rank. Ranks push their compressed parts to the owners; an owner decodes
// them in rank order into the mean, compresses that once (with a residual of its own), and all pull the same
// bytes: 3LC's parameter server with its shared pull (section 3), spread over the workers. Two encodings,
// whatever the number of ranks.
//
//   begin:  encode pushes, post all sends and receives
//   finish: wait for the pushes, mean in rank order, encode the pull, send it; wait for the other owners'
//           pulls, decode them into staging; copy to the caller; last bucket: vote, commit
#include "reduce/direct.h"

#include <cstring>
#include <deque>
#include <string>
#include <unordered_set>
#include <utility>

#include "base/little_endian.h"
#include "reduce/direct_bucket.h"
#include "reduce/owners.h"
#include "reduce/vote.h"
#include "wire/hashes.h"

namespace deltawire {
namespace {

constexpr std::uint32_t kMaxBucket = 8190;
constexpr std::string_view kStateMagic = "DWDIRECT";
constexpr std::uint64_t kStateHeadBytes =
    32;  // magic, u32 version, u32 world, u64 push bytes, u32 rank, u32 0

std::uint16_t push_slice(const Step& step) noexcept {
  return static_cast<std::uint16_t>(2 * step.bucket);
}
std::uint16_t pull_slice(const Step& step) noexcept {
  return static_cast<std::uint16_t>(2 * step.bucket + 1);
}

class Stopwatch {
 public:
  explicit Stopwatch(double& total) : total_(total), start_(Clock::now()) {}
  ~Stopwatch() { total_ += std::chrono::duration<double>(Clock::now() - start_).count(); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& total_;
  Deadline start_;
};

class DirectReducer final : public Reducer {
 public:
  DirectReducer(std::unique_ptr<Channel> push, std::unique_ptr<Channel> pull)
      : push_(std::move(push)), pull_(std::move(pull)) {}

  std::string spec() const override { return "direct(" + push_->codec().spec() + ")"; }
  Status begin(std::span<const Named> tensors, const Step& step, Transport& transport,
               Deadline deadline) override;
  Result<Report> finish() override;
  std::size_t in_flight() const noexcept override { return buckets_.size(); }
  void revert() noexcept override;
  Status mask_sent(std::string_view name, std::span<float> momentum) const override;
  Result<std::vector<std::byte>> save() const override;
  Status load(Bytes state) override;

 private:
  using Bucket = std::unique_ptr<DirectBucket>;

  Status check(std::span<const Named> tensors, const Step& step, const Transport& transport);
  Status start(DirectBucket& bucket);
  Status push_to_owners(DirectBucket& bucket);
  void post_receives(DirectBucket& bucket);
  Status complete(DirectBucket& bucket);
  Status average_pushes(DirectBucket& bucket);
  Status share_mean(DirectBucket& bucket);
  Status collect_pulls(DirectBucket& bucket);
  Result<std::uint64_t> wait(DirectBucket& bucket, Handle& handle);
  Status decode_from(int rank, Bytes message, std::span<const Named> parts, DirectBucket& bucket,
                     bool is_push);
  void send(DirectBucket& bucket, int peer, std::uint16_t slice, std::span<const Bytes> pieces);
  tl::unexpected<Error> give_up(Transport& transport, Error error);
  void drain(DirectBucket& bucket);

  std::unique_ptr<Channel> push_;
  std::unique_ptr<Channel> pull_;
  std::deque<Bucket> buckets_;    // in flight, oldest first
  std::vector<Bucket> finished_;  // of the open step: their sends may still be under way
  std::vector<Bucket> spare_;
  std::uint64_t digest_ = 0;
  int saved_world_ = 0;  // what load() brought or begin() saw; 0: nothing yet
  int saved_rank_ = 0;
};

MessageId message_id(const DirectBucket& bucket, int sender, std::uint16_t slice) {
  return MessageId{bucket.step.number, bucket.step.epoch, static_cast<std::uint16_t>(sender),
                   static_cast<std::uint16_t>(bucket.transport->world_size()), slice};
}

Status DirectReducer::check(std::span<const Named> tensors, const Step& step, const Transport& transport) {
  if (step.bucket > kMaxBucket) {
    return fail(ErrorCode::kInvalidArgument,
                "bucket " + std::to_string(step.bucket) + " is beyond 8,190; use larger buckets");
  }
  if (saved_world_ != 0 && (saved_world_ != transport.world_size() || saved_rank_ != transport.rank())) {
    return fail(ErrorCode::kMismatch,
                "the residuals belong to rank " + std::to_string(saved_rank_) + " of " +
                    std::to_string(saved_world_) + ", but this is rank " + std::to_string(transport.rank()) +
                    " of " + std::to_string(transport.world_size()) + "; start with a new reducer instead");
  }
  std::unordered_set<std::string_view> names;
  for (const Named& tensor : tensors) {
    const std::string name(tensor.name);
    if (tensor.tensor.dtype != DType::kF32) {
      return fail(ErrorCode::kUnsupportedDType, "tensor '" + name + "' is " +
                                                    std::string(dtype_name(tensor.tensor.dtype)) +
                                                    ", but only float32 can be reduced; convert it");
    }
    if (!names.insert(tensor.name).second) {
      return fail(ErrorCode::kInvalidArgument,
                  "tensor '" + name + "' stands twice in the bucket; names must be unique");
    }
  }
  saved_world_ = transport.world_size();
  saved_rank_ = transport.rank();
  return {};
}

Status DirectReducer::begin(std::span<const Named> tensors, const Step& step, Transport& transport,
                            Deadline deadline) {
  if (Status legal = check(tensors, step, transport); !legal) return give_up(transport, legal.error());
  Bucket bucket;
  if (spare_.empty()) {
    bucket = std::make_unique<DirectBucket>();
  } else {
    bucket = std::move(spare_.back());
    spare_.pop_back();
  }
  bucket->plan(tensors, step, transport, deadline);
  buckets_.push_back(std::move(bucket));
  if (Status started = start(*buckets_.back()); !started) return give_up(transport, started.error());
  return {};
}

Status DirectReducer::start(DirectBucket& bucket) {
  post_receives(bucket);
  return push_to_owners(bucket);
}

void DirectReducer::post_receives(DirectBucket& bucket) {
  Transport& transport = *bucket.transport;
  const int self = transport.rank();
  const std::uint64_t push_bound = push_->message_bound(bucket.mean);
  for (int peer = 0; peer < transport.world_size(); ++peer) {
    if (peer == self) continue;
    const auto at = static_cast<std::size_t>(peer);
    if (!bucket.mean.empty()) {
      Incoming& push = bucket.pushes[at];
      push.handle = transport.post_recv(peer, tag_of(bucket.step, push_slice(bucket.step)),
                                        push.buffer.take(push_bound));
    }
    if (!bucket.output[at].empty()) {
      Incoming& pull = bucket.pulls[at];
      pull.handle = transport.post_recv(peer, tag_of(bucket.step, pull_slice(bucket.step)),
                                        pull.buffer.take(pull_->message_bound(bucket.output[at])));
    }
  }
}

void DirectReducer::send(DirectBucket& bucket, int peer, std::uint16_t slice, std::span<const Bytes> pieces) {
  for (const Bytes piece : pieces) bucket.report.bytes_sent += piece.size();
  bucket.sends.push_back(bucket.transport->post_send(peer, tag_of(bucket.step, slice), pieces));
}

Status DirectReducer::push_to_owners(DirectBucket& bucket) {
  const Stopwatch timer(bucket.report.encode_seconds);
  const int self = bucket.transport->rank();
  const int world = bucket.transport->world_size();
  for (int i = 1; i <= world; ++i) {
    // Everybody starts with another owner, and ends with itself, so that no owner is flooded first.
    const int owner = (self + i) % world;
    const auto& parts = bucket.input[static_cast<std::size_t>(owner)];
    if (parts.empty()) continue;
    const auto pieces = push_->encode(parts, message_id(bucket, self, push_slice(bucket.step)));
    if (!pieces) return forward_error(pieces);
    if (owner == self) {
      bucket.own_push.assign(pieces->begin(), pieces->end());
    } else {
      send(bucket, owner, push_slice(bucket.step), *pieces);
    }
  }
  return {};
}

Result<std::uint64_t> DirectReducer::wait(DirectBucket& bucket, Handle& handle) {
  const Stopwatch timer(bucket.report.exchange_seconds);
  return bucket.transport->wait(std::exchange(handle, Handle::kNone), bucket.deadline);
}

Status DirectReducer::decode_from(int rank, Bytes message, std::span<const Named> parts, DirectBucket& bucket,
                                  bool is_push) {
  const Stopwatch timer(bucket.report.decode_seconds);
  const MessageId id = message_id(bucket, rank, is_push ? push_slice(bucket.step) : pull_slice(bucket.step));
  const float scale = 1.0F / static_cast<float>(bucket.transport->world_size());
  const Status decoded = is_push ? push_->decode(message, parts, id, Into::kAccumulate, scale)
                                 : pull_->decode(message, parts, id, Into::kOverwrite, 1.0F);
  if (decoded) return {};
  return fail(decoded.error().code, "from rank " + std::to_string(rank) + ": " + decoded.error().message,
              rank);
}

Status DirectReducer::average_pushes(DirectBucket& bucket) {
  const int self = bucket.transport->rank();
  for (int rank = 0; rank < bucket.transport->world_size(); ++rank) {
    Bytes message;
    if (rank == self) {
      bucket.joined.clear();
      for (const Bytes piece : bucket.own_push) {
        bucket.joined.insert(bucket.joined.end(), piece.begin(), piece.end());
      }
      message = bucket.joined;
    } else {
      Incoming& push = bucket.pushes[static_cast<std::size_t>(rank)];
      const Result<std::uint64_t> received = wait(bucket, push.handle);
      if (!received) return forward_error(received);
      message = push.buffer.first(*received);
    }
    if (Status s = decode_from(rank, message, bucket.mean, bucket, true); !s) return s;
  }
  return {};
}

Status DirectReducer::share_mean(DirectBucket& bucket) {
  const int self = bucket.transport->rank();
  Result<std::span<const Bytes>> pieces = std::span<const Bytes>{};
  {
    const Stopwatch timer(bucket.report.encode_seconds);
    pieces = pull_->encode(bucket.mean, message_id(bucket, self, pull_slice(bucket.step)));
  }
  if (!pieces) return forward_error(pieces);
  for (int i = 1; i < bucket.transport->world_size(); ++i) {
    send(bucket, (self + i) % bucket.transport->world_size(), pull_slice(bucket.step), *pieces);
  }
  // The owner applies the bytes that the others get, not the mean that it knows better.
  bucket.joined.clear();
  for (const Bytes piece : *pieces) {
    bucket.joined.insert(bucket.joined.end(), piece.begin(), piece.end());
  }
  return decode_from(self, bucket.joined, bucket.output[static_cast<std::size_t>(self)], bucket, false);
}

Status DirectReducer::collect_pulls(DirectBucket& bucket) {
  for (int owner = 0; owner < bucket.transport->world_size(); ++owner) {
    Incoming& pull = bucket.pulls[static_cast<std::size_t>(owner)];
    if (pull.handle == Handle::kNone) continue;
    const Result<std::uint64_t> received = wait(bucket, pull.handle);
    if (!received) return forward_error(received);
    const auto& parts = bucket.output[static_cast<std::size_t>(owner)];
    if (Status s = decode_from(owner, pull.buffer.first(*received), parts, bucket, false); !s) return s;
  }
  return {};
}

Status DirectReducer::complete(DirectBucket& bucket) {
  if (!bucket.mean.empty()) {
    if (Status s = average_pushes(bucket); !s) return s;
    if (Status s = share_mean(bucket); !s) return s;
  }
  if (Status s = collect_pulls(bucket); !s) return s;
  digest_ = digest64(std::as_bytes(std::span(bucket.staged)), digest_);
  bucket.report.digest = digest_;
  if (!bucket.step.last) return {};
  {
    const Stopwatch timer(bucket.report.exchange_seconds);
    if (Status s = vote(bucket.step, digest_, *bucket.transport, bucket.deadline); !s) return s;
  }
  // Nobody votes before having received all, so these sends are over; the waits only collect them.
  for (const Bucket& earlier : finished_) {
    for (Handle& handle : earlier->sends) {
      if (const auto sent = wait(*earlier, handle); !sent) return forward_error(sent);
    }
  }
  for (Handle& handle : bucket.sends) {
    if (const auto sent = wait(bucket, handle); !sent) return forward_error(sent);
  }
  return {};
}

Result<Report> DirectReducer::finish() {
  if (buckets_.empty()) return fail(ErrorCode::kState, "no bucket is in flight; begin one first");
  DirectBucket& bucket = *buckets_.front();
  if (Status done = complete(bucket); !done) return give_up(*bucket.transport, done.error());
  bucket.publish();
  const Report report = bucket.report;
  const bool last = bucket.step.last;
  finished_.push_back(std::move(buckets_.front()));
  buckets_.pop_front();
  if (last) {
    push_->commit();
    pull_->commit();
    digest_ = 0;
    for (Bucket& done : finished_) spare_.push_back(std::move(done));
    finished_.clear();
  }
  return report;
}

void DirectReducer::drain(DirectBucket& bucket) {
  const auto end = [&](Handle& handle) {
    if (handle != Handle::kNone) (void)wait(bucket, handle);
  };
  for (Incoming& push : bucket.pushes) end(push.handle);
  for (Incoming& pull : bucket.pulls) end(pull.handle);
  for (Handle& handle : bucket.sends) end(handle);
}

// The transport lets go of the buffers when a wait has failed: so abort, wait for everything, then free.
tl::unexpected<Error> DirectReducer::give_up(Transport& transport, Error error) {
  if (error.suspect == kNoSuspect) error.suspect = transport.rank();
  transport.abort(error);
  for (const Bucket& bucket : buckets_) drain(*bucket);
  for (const Bucket& bucket : finished_) drain(*bucket);
  revert();
  return tl::unexpected<Error>(std::move(error));
}

void DirectReducer::revert() noexcept {
  push_->revert();
  pull_->revert();
  digest_ = 0;
  buckets_.clear();
  finished_.clear();
}

Status DirectReducer::mask_sent(std::string_view name, std::span<float> momentum) const {
  if (saved_world_ == 0) return fail(ErrorCode::kState, "no step has been committed yet");
  for (const OwnedRange& range : owned_ranges(name, momentum.size(), saved_world_)) {
    const Status masked = push_->mask_sent(name, range.first, momentum.subspan(range.first, range.count));
    if (!masked) return masked;
  }
  return {};
}

Result<std::vector<std::byte>> DirectReducer::save() const {
  const auto push = push_->save();
  if (!push) return forward_error(push);
  const auto pull = pull_->save();
  if (!pull) return forward_error(pull);
  std::vector<std::byte> out(kStateHeadBytes);
  std::memcpy(out.data(), kStateMagic.data(), kStateMagic.size());
  store_le<std::uint32_t>(out.data() + 12, static_cast<std::uint32_t>(saved_world_));
  store_le<std::uint64_t>(out.data() + 16, push->size());
  store_le<std::uint32_t>(out.data() + 24, static_cast<std::uint32_t>(saved_rank_));
  out.insert(out.end(), push->begin(), push->end());
  out.insert(out.end(), pull->begin(), pull->end());
  return out;
}

Status DirectReducer::load(Bytes state) {
  if (!buckets_.empty() || !finished_.empty()) {
    return fail(ErrorCode::kState, "a step is open; finish or revert it before loading");
  }
  if (state.size() < kStateHeadBytes) return fail(ErrorCode::kTruncated, "reducer state: too few bytes");
  if (std::memcmp(state.data(), kStateMagic.data(), kStateMagic.size()) != 0) {
    return fail(ErrorCode::kCorrupt, "reducer state: wrong magic; these bytes are no saved direct reducer");
  }
  if (load_le<std::uint32_t>(state.data() + 8) != 0) {
    return fail(ErrorCode::kUnsupportedVersion, "reducer state: written by a newer deltawire; use that one");
  }
  const auto push_bytes = load_le<std::uint64_t>(state.data() + 16);
  const Bytes rest = state.subspan(kStateHeadBytes);
  if (push_bytes > rest.size()) return fail(ErrorCode::kTruncated, "reducer state: ends within a channel");
  const auto before = push_->save();
  if (!before) return forward_error(before);
  if (Status s = push_->load(rest.first(push_bytes)); !s) return s;
  if (Status s = pull_->load(rest.subspan(push_bytes)); !s) {
    (void)push_->load(*before);  // all or nothing
    return s;
  }
  saved_world_ = static_cast<int>(load_le<std::uint32_t>(state.data() + 12));
  saved_rank_ = static_cast<int>(load_le<std::uint32_t>(state.data() + 24));
  return {};
}

}  // namespace

Result<std::unique_ptr<Reducer>> make_direct_reducer(std::string_view codec_spec,
                                                     const ReducerOptions& options) {
  auto push = make_channel(codec_spec, ChannelOptions{options.policy, options.revert});
  if (!push) return forward_error(push);
  // A folding revert would keep the mean of a step whose gradients the push channels keep already: twice. So
  // the owner's residual is taken back exactly; it is only 1/N of the model.
  auto pull = make_channel(codec_spec, ChannelOptions{options.policy, Revert::kExact});
  if (!pull) return forward_error(pull);
  return std::make_unique<DirectReducer>(std::move(*push), std::move(*pull));
}

}  // namespace deltawire
