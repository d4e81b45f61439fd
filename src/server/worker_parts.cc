// One part of a worker: its push, and the pulls that come for it.
#include <algorithm>
#include <utility>

#include "server/worker_rank.h"

namespace deltawire {

Status Worker::fetch(Deadline deadline) {
  auto channel = make_model_channel();
  if (!channel) return forward_error(channel);
  for (WorkerPart& part : parts_) {
    const Named whole = named(part, parameters(part));
    part.memory.resize(1 + (*channel)->message_bound(std::span(&whole, 1), 0));
    post(part);
  }
  for (WorkerPart& part : parts_) {
    const auto bytes = transport_.wait(std::exchange(part.receive, Handle::kNone), deadline);
    if (!bytes) return forward_error(bytes);
    const Bytes message = Bytes(part.memory).first(*bytes);
    const Result<Verdict> verdict = read_verdict(message);
    if (!verdict) return fail(verdict.error().code, verdict.error().message, part.part.server);
    const Named whole = named(part, parameters(part));
    const Status fetched = (*channel)->decode(
        message.subspan(1), std::span(&whole, 1),
        model_.message(part.number, Way::kModel, step_, part.part.server), Into::kOverwrite, 1.0F);
    if (!fetched)
      return fail(fetched.error().code, "the model: " + fetched.error().message, part.part.server);
    counts_.pull_bytes += *bytes;
    post(part);
  }
  return {};
}

void Worker::post(WorkerPart& part) {
  const Named whole = named(part, parameters(part));
  const std::uint64_t bound = 1 + pull_->message_bound(std::span(&whole, 1), part.steps);
  if (part.memory.size() < bound) part.memory.resize(bound);
  part.receive = transport_.post_recv(part.part.server, model_.tag(part.number, Way::kPull), part.memory);
}

Status Worker::push_part(WorkerPart& part, std::span<const float> gradient) {
  const std::span input(input_.data(), gradient.size());
  std::ranges::copy(gradient, input.begin());
  for (std::size_t i = 0; i < part.held.size(); ++i) input[i] += part.held[i];
  part.held.clear();
  if (part.is_closed || (options_.backup > 0 && transport_.done(part.receive))) return keep(part, input);
  const Named whole = named(part, input.data());
  const auto pieces = part.channel->encode(std::span(&whole, 1),
                                           model_.message(part.number, Way::kPush, step_, transport_.rank()));
  if (!pieces) return forward_error(pieces);
  if (options_.backup > 0 && part.channel->residual(whole.name, whole.first).empty()) {
    part.held.assign(input.begin(), input.end());
  }
  for (const Bytes piece : *pieces) counts_.push_bytes += piece.size();
  part.send = transport_.post_send(part.part.server, model_.tag(part.number, Way::kPush), *pieces);
  part.pushed = Pushed::kSent;
  return {};
}

// The step's change is here already, made without this gradient.
Status Worker::keep(WorkerPart& part, std::span<float> input) {
  const Named whole = named(part, input.data());
  const MessageId id = model_.message(part.number, Way::kPush, step_, transport_.rank());
  if (Status prepared = part.channel->prepare(std::span(&whole, 1), step_); !prepared) return prepared;
  if (part.channel->residual(whole.name, whole.first).empty()) {
    part.held.assign(input.begin(), input.end());
  } else {
    part.channel->keep(std::span(&whole, 1), id);
    part.channel->revert();
  }
  part.pushed = Pushed::kKept;
  ++counts_.late_pushes;
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
  const Bytes message = Bytes(part.memory).first(*bytes);
  counts_.pull_bytes += *bytes;
  if (message.empty()) {
    part.is_closed = true;
    has_ended_ = true;
    return settle(part, Verdict::kLate, deadline);
  }
  const Result<Verdict> verdict = read_verdict(message);
  if (!verdict) return fail(verdict.error().code, verdict.error().message, part.part.server);
  const Named whole = named(part, parameters(part));
  const Status added = pull_->decode(message.subspan(1), std::span(&whole, 1),
                                     model_.message(part.number, Way::kPull, part.steps, part.part.server),
                                     Into::kAccumulate, 1.0F);
  if (!added) return fail(added.error().code, "a pull: " + added.error().message, part.part.server);
  if (Status done = settle(part, *verdict, deadline); !done) return done;
  ++part.steps;
  post(part);
  return {};
}

// What was pushed stands, or waits for the next step.
Status Worker::settle(WorkerPart& part, Verdict verdict, Deadline deadline) {
  if (part.pushed == Pushed::kSent) {
    const auto gone = transport_.wait(std::exchange(part.send, Handle::kNone), deadline);
    if (!gone) return forward_error(gone);
    if (verdict == Verdict::kCounted) {
      part.channel->commit();
      part.held.clear();
    } else {
      part.channel->revert();
      ++counts_.late_pushes;
    }
  }
  part.pushed = Pushed::kNo;
  return {};
}

}  // namespace deltawire
