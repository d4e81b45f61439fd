#include "reduce/bucket_run.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/errors.h"
#include "reduce/vote.h"

namespace deltawire {

namespace {

constexpr std::uint16_t kStagesPerRound = 2;

// What a channel has encoded, or its error with advice.
template <class Encoded>
Encoded advised(Encoded encoded) {
  if (!encoded && encoded.error().code == ErrorCode::kNotFinite) encoded.error().advice = kNotFiniteAdvice;
  return encoded;
}

}  // namespace

tl::unexpected<Error> blame(int sender, const Error& error, const RankNames& names) {
  Error told = error;
  told.suspect = sender;
  return fail_in("from " + names.of(sender) + ": ", std::move(told));
}

void BucketRun::open(const Step& step, Transport& transport, Deadline deadline, std::uint16_t round) {
  step_ = step;
  round_ = round;
  transport_ = &transport;
  deadline_ = deadline;
  time_allowed_ = deadline - MachineClock::now();
  report_ = Report{};
  if (step.timed) report_.spans.reserve(Report::kSpansMax);
}

std::uint16_t BucketRun::stage_in_step(std::uint16_t stage) const noexcept {
  assert(stage < kStagesPerRound || round_ == 0);
  return static_cast<std::uint16_t>(round_ * kStagesPerRound + stage);
}

Tag BucketRun::tag(std::uint16_t stage) const noexcept {
  return tag_of(step_, stage_in_step(stage));
}

MessageId BucketRun::message_id(int encoder, std::uint16_t stage) const {
  assert(encoder >= 0 && encoder < world() && step_.bucket <= UINT16_MAX);
  return {.step = step_.number,
          .rank = static_cast<std::uint16_t>(encoder),
          .world = static_cast<std::uint16_t>(world()),
          .bucket = static_cast<std::uint16_t>(step_.bucket),
          .stage = stage_in_step(stage),
          .scale = step_.scale};
}

Result<std::span<const Bytes>> BucketRun::encode(Channel& channel, const MessageLayout& parts,
                                                 std::uint16_t stage, std::uint64_t room) {
  const Stopwatch timer(report_, Stopwatch::Phase::kEncode);
  return advised(channel.encode(parts, message_id(rank(), stage), room));
}

Result<std::span<const Bytes>> BucketRun::encode_in_place(Channel& channel, const MessageLayout& parts,
                                                          std::uint16_t stage, std::uint64_t room) {
  const Stopwatch timer(report_, Stopwatch::Phase::kEncode);
  return advised(channel.encode_in_place(parts, message_id(rank(), stage), room));
}

Status BucketRun::encode_all(Channel& channel, std::span<const MessageLayout> messages, std::uint16_t stage,
                             std::uint64_t room, std::vector<std::span<const Bytes>>& encoded) {
  const Stopwatch timer(report_, Stopwatch::Phase::kEncode);
  return advised(channel.encode_all(messages, message_id(rank(), stage), room, encoded));
}

Status BucketRun::decode(Channel& channel, std::span<const ReceivedMessage> messages, const Source& source,
                         Into into, float scale) {
  const Stopwatch timer(report_, Stopwatch::Phase::kDecode);
  const MessageId id = message_id(source.encoder, source.stage);
  if (Status s = channel.decode_all(messages, id, into, scale); !s)
    return blame(source.sender, s.error(), transport_->names());
  return {};
}

void BucketMessages::post(Incoming& receive, int peer, std::uint16_t stage, std::uint64_t capacity_bytes) {
  assert(peer >= 0 && peer < run_->world() && peer != run_->rank());
  assert(receive.handle == Handle::kNone);
  receive.buffer.reset();
  receive.buffer = pool_->take(capacity_bytes);
  receive.handle = run_->transport().post_recv(peer, run_->tag(stage), receive.buffer.bytes());
}

Result<Bytes> BucketMessages::take(Incoming& receive) {
  const Handle handle = std::exchange(receive.handle, Handle::kNone);
  ASSIGN_OR_RETURN(const auto length, run_->transport().wait(handle, run_->deadline()));
  assert(length <= receive.buffer.bytes().size());
  return Bytes(receive.buffer.bytes()).first(length);
}

Handle BucketMessages::send(int peer, std::uint16_t stage, std::span<const Bytes> pieces, Channel* from) {
  assert(peer >= 0 && peer < run_->world() && peer != run_->rank());
  for (const Bytes piece : pieces) run_->report().bytes_sent += piece.size();
  sends_.push_back({Handle::kNone, from, stage, pieces});  // first: a send that is posted must be known
  sends_.back().handle = run_->transport().post_send(peer, run_->tag(stage), pieces);
  return sends_.back().handle;
}

// Every rank starts with another receiver, so that none is flooded first.
void BucketMessages::send_to_all(std::uint16_t stage, std::span<const Bytes> pieces, Channel* from) {
  const int world = run_->world();
  for (int i = 1; i < world; ++i) send((run_->rank() + i) % world, stage, pieces, from);
}

// A message goes to one rank or to all; its memory is free when the last copy is sent.
void BucketMessages::release_sent() noexcept {
  auto kept = sends_.begin();
  for (auto first = sends_.begin(); first != sends_.end();) {
    const auto end = std::find_if(first, sends_.end(), [&](const Sent& other) {
      return other.message.data() != first->message.data();
    });
    const bool all_sent = first->from != nullptr && std::all_of(first, end, [&](const Sent& sent) {
                            return run_->transport().done(sent.handle);
                          });
    if (all_sent) {
      first->from->release(first->message);
      for (; first != end; ++first) await_end(first->handle);
    } else {
      kept = std::move(first, end, kept);
      first = end;
    }
  }
  sends_.erase(kept, sends_.end());
}

void BucketMessages::await_sent(std::uint16_t stage) noexcept {
  const Stopwatch timer(run_->report(), Stopwatch::Phase::kExchange);
  for (Sent& sent : sends_) {
    if (sent.stage == stage) await_end(sent.handle);
  }
}

void BucketMessages::drain() noexcept {
  const Stopwatch timer(run_->report(), Stopwatch::Phase::kExchange);
  for (Incoming& receive : receives_) await_end(receive.handle);
  for (Sent& sent : sends_) await_end(sent.handle);
}

// A wait on a transport that has failed returns at once, at worst without memory for the error's text.
void BucketMessages::await_end(Handle& handle) noexcept {
  try {
    if (handle != Handle::kNone) (void)run_->transport().wait(handle, run_->deadline());
    // NOLINTNEXTLINE(bugprone-empty-catch): no buffer is used after the failure, whatever its text.
  } catch (const std::bad_alloc&) {
  }
  handle = Handle::kNone;
}

}  // namespace deltawire
