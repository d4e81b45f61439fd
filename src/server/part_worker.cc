#include "server/part_worker.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "base/errors.h"

namespace deltawire {
namespace {

// What came from a part's server is not what it should be.
tl::unexpected<Error> blame(int server, const std::string& what, const Error& error) {
  tl::unexpected<Error> told = fail_in(what + " of rank " + std::to_string(server) + ": ", error);
  told.value().suspect = server;
  return told;
}

}  // namespace

void PartWorker::post() {
  assert(receive_ == Handle::kNone && !is_closed_);
  const Named whole = named(values_);
  const std::uint64_t change = pull_head_bytes(1) + run_.pull->message_bound(std::span(&whole, 1), steps_);
  const std::uint64_t model = pull_head_bytes(std::min<std::uint64_t>(kVerdictsMax, run_.options.max_lag)) +
                              run_.whole->message_bound(std::span(&whole, 1), steps_);
  memory_.resize(std::max<std::size_t>(memory_.size(), std::max(change, model) + lines_.bound()));
  receive_ = run_.transport.post_recv(part().server, run_.model.tag(number_, Way::kPull), memory_);
}

Status PartWorker::fetch(const PartWorker& first, Deadline deadline) {
  ASSIGN_OR_RETURN(const auto bytes, run_.transport.wait(std::exchange(receive_, Handle::kNone), deadline));
  run_.counts.pull_bytes += bytes;
  const Result<PullHead> pull = read_pull(Bytes(memory_).first(bytes));
  if (!pull) return blame(part().server, "a pull", pull.error());
  const Result<FrameReader> frame = FrameReader::open(pull->body);
  if (!frame) return blame(part().server, "the model", frame.error());
  const std::uint64_t step = frame->header().message.step;
  if (&first != this && step != first.steps()) {
    return mismatch("rank " + std::to_string(part().server) + " serves the model after " +
                        std::to_string(step) + " steps, rank " + std::to_string(first.part().server) +
                        " after " + std::to_string(first.steps()) +
                        "; load states of the same step on all servers",
                    part().server);
  }
  RETURN_IF_ERROR(replace(pull->body, step));
  lines_.change_scales({}, held_);
  steps_ = pushes_ = step;
  post();
  return {};
}

Status PartWorker::replace(Bytes body, std::uint64_t version) {
  const Named whole = named(values_);
  const Result<Bytes> model = lines_.take_scales(body, version, part().server, *channel_);
  const Status fetched =
      !model ? tl::unexpected<Error>(model.error())
             : run_.whole->decode(*model, std::span(&whole, 1),
                                  run_.model.message(number_, Way::kModel, version, part().server),
                                  Into::kOverwrite, 1.0F);
  if (!fetched) return blame(part().server, "the model", fetched.error());
  return {};
}

Status PartWorker::push(std::span<const float> gradient) {
  assert(gradient.size() == part().count && gradient.size() <= run_.input.size());
  assert(held_.empty() || held_.size() == part().count);
  assert(pushes_ <= run_.step);
  const std::span input(run_.input.data(), gradient.size());
  std::vector<std::byte> beside;
  if (lines_.has_squares(run_.step, *channel_)) {
    ASSIGN_OR_RETURN(beside, lines_.encode_squares(gradient, run_.step, run_.transport.rank()));
  }
  std::ranges::copy(gradient, input.begin());
  for (std::size_t i = 0; i < held_.size(); ++i) input[i] += held_[i];
  held_.clear();
  pushes_ = run_.step + 1;
  // The step's change is here already, made without this gradient.
  const bool is_late = run_.may_be_late() && steps_ == run_.step && run_.transport.done(receive_);
  if (is_closed_ || is_late || steps_ > run_.step) {
    held_.assign(input.begin(), input.end());
    ++run_.counts.late_pushes;
    return {};
  }
  lines_.divide_rows(input);
  const Named whole = named(input.data());
  const MessageId id = run_.model.message(number_, Way::kPush, run_.step, run_.transport.rank());
  ASSIGN_OR_RETURN(const auto pieces, channel_->encode(std::span(&whole, 1), id));
  Unanswered& push = unanswered_.emplace_back();
  push.step = run_.step;
  push.beside = std::move(beside);
  if (run_.options.staleness > 0) {
    push.copy = joined(pieces);
    push.pieces.assign(1, push.copy);
    channel_->commit();
  } else {
    push.pieces.assign(pieces.begin(), pieces.end());
  }
  for (const Bytes piece : push.pieces) run_.counts.push_bytes += piece.size();
  run_.counts.push_bytes += push.beside.size();
  send(push);
  return {};
}

void PartWorker::send(Unanswered& push) {
  std::vector<Bytes> all{Bytes(push.beside)};
  all.insert(all.end(), push.pieces.begin(), push.pieces.end());
  push.send = run_.transport.post_send(part().server, run_.model.tag(number_, Way::kPush), all);
}

Status PartWorker::advance(std::uint64_t steps, Deadline deadline) {
  while (!is_closed_ && steps_ < steps) {
    RETURN_IF_ERROR(apply(deadline));
  }
  return {};
}

Status PartWorker::follow(std::uint64_t steps, Deadline deadline) {
  while (!is_closed_ && steps_ < steps) {
    if (pushes_ <= steps_) skip();
    RETURN_IF_ERROR(apply(deadline));
  }
  return {};
}

void PartWorker::skip() {
  assert(!is_closed_ && (unanswered_.empty() || unanswered_.back().step < steps_));
  Unanswered& none = unanswered_.emplace_back();
  none.step = steps_;
  none.skips = true;
  const SkipMessage message = skip_message(steps_);
  none.copy.assign(message.begin(), message.end());
  none.pieces.assign(1, none.copy);
  send(none);
}

Status PartWorker::apply(Deadline deadline) {
  assert(!is_closed_);
  ASSIGN_OR_RETURN(const auto bytes, run_.transport.wait(std::exchange(receive_, Handle::kNone), deadline));
  run_.counts.pull_bytes += bytes;
  if (bytes == 0) return end(deadline);
  const Result<PullHead> pull = read_pull(Bytes(memory_).first(bytes));
  if (!pull) return blame(part().server, "a pull", pull.error());
  if (pull->kind == PullKind::kWhole) {
    RETURN_IF_ERROR(replace(pull->body, steps_ + pull->steps()));
    ++run_.counts.whole_models;
  } else {
    const Named whole = named(values_);
    const Result<Bytes> change = lines_.take_scales(pull->body, steps_ + 1, part().server, *channel_);
    const Status added =
        !change ? tl::unexpected<Error>(change.error())
                : run_.pull->decode(*change, std::span(&whole, 1),
                                    run_.model.message(number_, Way::kPull, steps_, part().server),
                                    Into::kAccumulate, 1.0F);
    if (!added) return blame(part().server, "a pull", added.error());
  }
  for (std::uint64_t at = 0; at < pull->steps(); ++at) {
    RETURN_IF_ERROR(settle(steps_ + at, pull->verdict(at), deadline));
  }
  lines_.change_scales(channel_->residual(run_.model.name(part()), part().first), held_);
  steps_ += pull->steps();
  post();
  return {};
}

// The server has closed: what it has not answered is late.
Status PartWorker::end(Deadline deadline) {
  is_closed_ = true;
  run_.has_ended = true;
  while (!unanswered_.empty()) {
    RETURN_IF_ERROR(settle(unanswered_.front().step, PushVerdict::kLate, deadline));
  }
  return {};
}

// The push of this step, if there was one: it counted, or what it had waits for the next.
Status PartWorker::settle(std::uint64_t step, PushVerdict verdict, Deadline deadline) {
  assert(unanswered_.empty() || unanswered_.front().step >= step);
  if (unanswered_.empty() || unanswered_.front().step != step) return {};
  Unanswered& push = unanswered_.front();
  RETURN_IF_ERROR(run_.transport.wait(std::exchange(push.send, Handle::kNone), deadline));
  if (verdict == PushVerdict::kLate && !push.skips) {
    RETURN_IF_ERROR(hold(push));
    ++run_.counts.late_pushes;
  }
  channel_->commit();
  unanswered_.pop_front();
  return {};
}

// With what its channel keeps this is what the push was made of.
Status PartWorker::hold(const Unanswered& push) {
  held_.resize(part().count);
  const Named whole = named(held_.data());
  const MessageId id = run_.model.message(number_, Way::kPush, push.step, run_.transport.rank());
  RETURN_IF_ERROR(channel_->decode(push.pieces, std::span(&whole, 1), id, Into::kAccumulate, 1.0F));
  // Without staleness, which has no scales, the push took along all that was held.
  lines_.multiply_rows(held_);
  return {};
}

void PartWorker::add_residual(std::span<float> sum) const {
  const auto add = [&](std::span<const float> waits) {
    assert(waits.size() <= sum.size());
    for (std::size_t i = 0; i < waits.size(); ++i) sum[i] += waits[i];
  };
  const std::span<const float> residual = channel_->residual(run_.model.name(part()), part().first);
  std::vector<float> scaled(residual.begin(), residual.end());
  if (!scaled.empty()) lines_.multiply_rows(scaled);
  add(scaled);
  add(held_);
}

void PartWorker::add_posted(std::vector<Handle>& posted) const {
  posted.push_back(receive_);
  for (const Unanswered& push : unanswered_) posted.push_back(push.send);
}

Status PartWorker::save(StateWriter& writer) const {
  if (is_under_way()) return wrong_state("save() comes after pull() or catch_up()");
  ASSIGN_OR_RETURN(const std::vector<std::byte> channel, channel_->save());
  writer.number(channel.size());
  writer.number(held_.size());
  writer.floats(held_);
  writer.bytes(channel);
  return {};
}

Result<PartWorker::Saved> PartWorker::read(StateReader& reader) const {
  ASSIGN_OR_RETURN(const std::uint64_t bytes, reader.number());
  ASSIGN_OR_RETURN(const std::uint64_t count, reader.number());
  if (count != 0 && count != part().count) {
    return corrupt("a worker's state: a late gradient of another count");
  }
  ASSIGN_OR_RETURN(std::vector<float> held, reader.floats(count));
  ASSIGN_OR_RETURN(const Bytes residual, reader.bytes(bytes));
  ASSIGN_OR_RETURN(auto channel, run_.make_push_channel());
  RETURN_IF_ERROR(channel->load(residual));
  return Saved{std::move(channel), std::move(held)};
}

void PartWorker::load(Saved saved) {
  assert(saved.channel != nullptr && (saved.held.empty() || saved.held.size() == part().count));
  channel_ = std::move(saved.channel);
  held_ = std::move(saved.held);
}

}  // namespace deltawire
