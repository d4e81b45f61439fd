#include "reduce/bucket_run.h"

#include <cassert>

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

}  // namespace deltawire
