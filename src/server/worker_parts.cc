// One part of a worker: its push, and the pulls that come for it.
#include <algorithm>
#include <string>
#include <utility>

#include "server/worker_rank.h"

namespace deltawire {
namespace {

// What came from a part's server is not what it should be.
tl::unexpected<Error> blame(const WorkerPart& part, const std::string& what, const Error& error) {
  return fail(error.code, what + " of rank " + std::to_string(part.part.server) + ": " + error.message,
              part.part.server);
}

}  // namespace

Status Worker::fetch(Deadline deadline) {
  auto channel = make_model_channel();
  if (!channel) return forward_error(channel);
  whole_ = std::move(*channel);
  for (WorkerPart& part : parts_) post(part);
  for (WorkerPart& part : parts_) {
    const auto bytes = transport_.wait(std::exchange(part.receive, Handle::kNone), deadline);
    if (!bytes) return forward_error(bytes);
    counts_.pull_bytes += *bytes;
    const Result<PullHead> pull = read_pull(Bytes(part.memory).first(*bytes));
    if (!pull) return blame(part, "a pull", pull.error());
    const Result<std::uint64_t> step = step_of_model(part, pull->body);
    if (!step) return forward_error(step);
    part.steps = part.pushes = step_ = version_ = *step;
    if (Status fetched = replace(part, pull->body, step_); !fetched) return fetched;
    post(part);
  }
  return {};
}

// The servers say where training stands: all of them the same step.
Result<std::uint64_t> Worker::step_of_model(const WorkerPart& part, Bytes frames) const {
  const Result<FrameReader> frame = FrameReader::open(frames);
  if (!frame) return blame(part, "the model", frame.error());
  const std::uint64_t step = frame->header().message.step;
  const WorkerPart& first = parts_.front();
  if (&part != &first && step != step_) {
    return fail(ErrorCode::kMismatch,
                "rank " + std::to_string(part.part.server) + " serves the model after " +
                    std::to_string(step) + " steps, rank " + std::to_string(first.part.server) + " after " +
                    std::to_string(step_) + "; load states of the same step on all servers",
                part.part.server);
  }
  return step;
}

Status Worker::replace(WorkerPart& part, Bytes body, std::uint64_t version) {
  const Named whole = named(part, parameters(part));
  const Status fetched = whole_->decode(body, std::span(&whole, 1),
                                        model_.message(part.number, Way::kModel, version, part.part.server),
                                        Into::kOverwrite, 1.0F);
  if (!fetched) return blame(part, "the model", fetched.error());
  return {};
}

void Worker::post(WorkerPart& part) {
  const Named whole = named(part, parameters(part));
  const std::uint64_t change = 1 + pull_->message_bound(std::span(&whole, 1), part.steps);
  const std::uint64_t model = kWholeHeadBytes + std::min<std::uint64_t>(kVerdictsMax, options_.max_lag) +
                              whole_->message_bound(std::span(&whole, 1), part.steps);
  part.memory.resize(std::max<std::size_t>(part.memory.size(), std::max(change, model)));
  part.receive = transport_.post_recv(part.part.server, model_.tag(part.number, Way::kPull), part.memory);
}

Status Worker::push_part(WorkerPart& part, std::span<const float> gradient) {
  const std::span input(input_.data(), gradient.size());
  std::ranges::copy(gradient, input.begin());
  for (std::size_t i = 0; i < part.held.size(); ++i) input[i] += part.held[i];
  part.held.clear();
  part.pushes = step_ + 1;
  // The step's change is here already, made without this gradient.
  const bool is_late = may_be_late() && part.steps == step_ && transport_.done(part.receive);
  if (part.is_closed || is_late || part.steps > step_) {
    part.held.assign(input.begin(), input.end());
    ++counts_.late_pushes;
    return {};
  }
  const Named whole = named(part, input.data());
  const auto pieces = part.channel->encode(std::span(&whole, 1),
                                           model_.message(part.number, Way::kPush, step_, transport_.rank()));
  if (!pieces) return forward_error(pieces);
  Unanswered& push = part.unanswered.emplace_back();
  push.step = step_;
  if (options_.staleness > 0) {
    push.copy = joined(*pieces);
    push.pieces.assign(1, push.copy);
    part.channel->commit();
  } else {
    push.pieces.assign(pieces->begin(), pieces->end());
  }
  for (const Bytes piece : push.pieces) counts_.push_bytes += piece.size();
  push.send = transport_.post_send(part.part.server, model_.tag(part.number, Way::kPush), push.pieces);
  return {};
}

// Applies pulls in order until the part has `steps`, or its server has closed.
Status Worker::advance(WorkerPart& part, std::uint64_t steps, Deadline deadline) {
  while (!part.is_closed && part.steps < steps) {
    if (Status applied = apply(part, deadline); !applied) return applied;
  }
  return {};
}

Status Worker::apply(WorkerPart& part, Deadline deadline) {
  const auto bytes = transport_.wait(std::exchange(part.receive, Handle::kNone), deadline);
  if (!bytes) return forward_error(bytes);
  counts_.pull_bytes += *bytes;
  if (*bytes == 0) {
    part.is_closed = true;
    has_ended_ = true;
    while (!part.unanswered.empty()) {
      const std::uint64_t step = part.unanswered.front().step;
      if (Status late = settle(part, step, Verdict::kLate, deadline); !late) return late;
    }
    return {};
  }
  const Result<PullHead> pull = read_pull(Bytes(part.memory).first(*bytes));
  if (!pull) return blame(part, "a pull", pull.error());
  if (pull->is_whole) {
    if (Status replaced = replace(part, pull->body, part.steps + pull->steps()); !replaced) return replaced;
    ++counts_.whole_models;
  } else {
    const Named whole = named(part, parameters(part));
    const Status added = pull_->decode(pull->body, std::span(&whole, 1),
                                       model_.message(part.number, Way::kPull, part.steps, part.part.server),
                                       Into::kAccumulate, 1.0F);
    if (!added) return blame(part, "a pull", added.error());
  }
  for (std::uint64_t at = 0; at < pull->steps(); ++at) {
    if (Status done = settle(part, part.steps + at, pull->verdict(at), deadline); !done) return done;
  }
  part.steps += pull->steps();
  post(part);
  return {};
}

// The push of this step, if there was one: it stands, or what it had waits for the next.
Status Worker::settle(WorkerPart& part, std::uint64_t step, Verdict verdict, Deadline deadline) {
  if (part.unanswered.empty() || part.unanswered.front().step != step) return {};
  Unanswered& push = part.unanswered.front();
  const auto gone = transport_.wait(std::exchange(push.send, Handle::kNone), deadline);
  if (!gone) return forward_error(gone);
  if (verdict == Verdict::kLate) {
    if (Status held = hold(part, push); !held) return held;
    ++counts_.late_pushes;
  }
  part.channel->commit();
  part.unanswered.pop_front();
  return {};
}

// With what its channel keeps this is what the push was made of.
Status Worker::hold(WorkerPart& part, const Unanswered& push) {
  part.held.resize(part.part.count);
  const Named whole = named(part, part.held.data());
  return part.channel->decode(push.pieces, std::span(&whole, 1),
                              model_.message(part.number, Way::kPush, push.step, transport_.rank()),
                              Into::kAccumulate, 1.0F);
}

}  // namespace deltawire
