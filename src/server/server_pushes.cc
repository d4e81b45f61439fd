// Workers' gradients: how they come in, when a part has enough of them, and their mean.
#include <algorithm>

#include "server/server_rank.h"

namespace deltawire {

void Server::post(OwnPart& own, std::size_t worker) {
  Inbox& inbox = own.inboxes[worker];
  // Rules may give a later step another codec.
  const Named named = model_.part_of(part(own), own.view.data());
  const std::uint64_t bound = std::max(push_->message_bound(std::span(&named, 1), step_),
                                       push_->message_bound(std::span(&named, 1), step_ + 1));
  if (inbox.memory.size() < bound) inbox.memory.resize(bound);
  inbox.is_here = false;
  inbox.receive = transport_.post_recv(rank_of(worker), model_.tag(own.number, Way::kPush), inbox.memory);
}

// Reads what has come. True: the part has pushes enough.
Result<bool> Server::collect(OwnPart& own, Deadline deadline) {
  std::size_t here = 0;
  for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
    Inbox& inbox = own.inboxes[worker];
    while (!inbox.is_here && !inbox.is_closed && transport_.done(inbox.receive)) {
      if (Status taken = take(own, worker, deadline); !taken) return forward_error(taken);
    }
    here += inbox.is_here ? 1 : 0;
  }
  return here >= needed();
}

// A push of this step waits in its inbox; one of a step before was too late, and its worker keeps it.
Status Server::take(OwnPart& own, std::size_t worker, Deadline deadline) {
  Inbox& inbox = own.inboxes[worker];
  const Result<std::uint64_t> bytes = transport_.wait(std::exchange(inbox.receive, Handle::kNone), deadline);
  if (!bytes) return forward_error(bytes);
  inbox.bytes = *bytes;
  counts_.push_bytes += *bytes;
  if (*bytes == 0) {
    inbox.is_closed = true;
    return {};
  }
  const Result<FrameReader> frame = FrameReader::open(Bytes(inbox.memory).first(*bytes));
  if (!frame)
    return fail(frame.error().code,
                "a push of rank " + std::to_string(rank_of(worker)) + ": " + frame.error().message,
                rank_of(worker));
  const std::uint64_t step = frame->header().message.step;
  if (step > step_ && !is_closing_) {
    return fail(ErrorCode::kMismatch,
                "rank " + std::to_string(rank_of(worker)) + " pushes for step " + std::to_string(step) +
                    " in step " + std::to_string(step_),
                rank_of(worker));
  }
  inbox.is_here = step == step_ && !is_closing_;
  if (!inbox.is_here) {
    ++counts_.late_pushes;
    post(own, worker);
  }
  return {};
}

// Whether enough workers are left that may push.
bool Server::may_come(const OwnPart& own) const noexcept {
  const auto closed = std::ranges::count_if(
      own.inboxes, [](const Inbox& inbox) { return inbox.is_closed && !inbox.is_here; });
  return own.inboxes.size() - static_cast<std::size_t>(closed) >= needed();
}

// The mean of the pushes that are here, in rank order, in gradient_.
Status Server::average(OwnPart& own) {
  const auto here = std::ranges::count_if(own.inboxes, [](const Inbox& inbox) { return inbox.is_here; });
  const float scale = 1.0F / static_cast<float>(here);
  const Named named = model_.part_of(part(own), gradient_.data());
  Into into = Into::kOverwrite;
  for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
    Inbox& inbox = own.inboxes[worker];
    counted_[worker] = inbox.is_here ? 1 : 0;
    if (!inbox.is_here) continue;
    const Status added =
        push_->decode(Bytes(inbox.memory).first(inbox.bytes), std::span(&named, 1),
                      model_.message(own.number, Way::kPush, step_, rank_of(worker)), into, scale);
    if (!added)
      return fail(added.error().code,
                  "a push of rank " + std::to_string(rank_of(worker)) + ": " + added.error().message,
                  rank_of(worker));
    into = Into::kAccumulate;
    post(own, worker);
  }
  return {};
}

Status Server::wait_for_pushes(Deadline deadline) {
  std::vector<Handle> awaited;
  for (const OwnPart& own : own_) {
    if (own.is_made) continue;
    for (const Inbox& inbox : own.inboxes) {
      if (!inbox.is_here && !inbox.is_closed) awaited.push_back(inbox.receive);
    }
  }
  add_blocking_sends(awaited);
  return transport_.wait_any(awaited, deadline);
}

}  // namespace deltawire
