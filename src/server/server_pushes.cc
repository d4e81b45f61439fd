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
Result<bool> Server::collect(OwnPart& own) {
  for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
    Inbox& inbox = own.inboxes[worker];
    while (!inbox.is_here && !inbox.is_closed && !is_dropped_[worker] && transport_.done(inbox.receive)) {
      if (Status taken = take(own, worker); !taken) return forward_error(taken);
    }
  }
  return has_enough(own);
}

// A push of this step waits in its inbox; one of a step before was too late, and its worker keeps it.
Status Server::take(OwnPart& own, std::size_t worker) {
  Inbox& inbox = own.inboxes[worker];
  const Result<std::uint64_t> bytes =
      transport_.wait(std::exchange(inbox.receive, Handle::kNone), Clock::now());
  if (!bytes) return dropped_or(worker, bytes.error());
  inbox.bytes = *bytes;
  counts_.push_bytes += *bytes;
  if (*bytes == 0) {
    inbox.is_closed = true;
    return {};
  }
  const Result<FrameReader> frame = FrameReader::open(Bytes(inbox.memory).first(*bytes));
  if (!frame) return refuse(worker, frame.error());
  const std::uint64_t step = frame->header().message.step;
  if (step > step_ && !is_closing_) {
    return refuse(worker, {ErrorCode::kMismatch,
                           "it is for step " + std::to_string(step) + " in step " + std::to_string(step_)});
  }
  inbox.is_here = step == step_ && !is_closing_;
  if (!inbox.is_here) {
    ++counts_.late_pushes;
    post(own, worker);
  }
  return {};
}

// A push that servers have no use for ends the run, or its worker's part in it.
Status Server::refuse(std::size_t worker, const Error& error) {
  const int rank = rank_of(worker);
  const Error named{error.code, "a push of rank " + std::to_string(rank) + ": " + error.message, rank};
  const bool is_its_fault = error.code != ErrorCode::kNoMemory;
  if (is_its_fault && options_.on_worker_loss == WorkerLoss::kDrop) transport_.drop(rank, named);
  return dropped_or(worker, named);
}

// Whether enough workers are left that may push.
bool Server::may_come(const OwnPart& own) const noexcept {
  std::size_t coming = 0;
  for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
    const Inbox& inbox = own.inboxes[worker];
    if (!is_dropped_[worker] && (inbox.is_here || !inbox.is_closed)) ++coming;
  }
  return coming >= needed();
}

// Those of dropped workers count in the mean, but the others are waited for all the same.
bool Server::has_enough(const OwnPart& own) const noexcept {
  std::size_t here = 0;
  for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
    if (own.inboxes[worker].is_here && !is_dropped_[worker]) ++here;
  }
  return here >= needed();
}

// The mean of the pushes that are here, in rank order, in gradient_. False: one was refused, and more must
// come.
Result<bool> Server::average(OwnPart& own) {
  for (;;) {
    const Result<bool> is_whole = add_up(own);
    if (!is_whole) return forward_error(is_whole);
    if (*is_whole) break;
    if (!has_enough(own)) return false;
  }
  for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
    Inbox& inbox = own.inboxes[worker];
    if (!inbox.is_here) continue;
    inbox.is_here = false;
    if (!is_dropped_[worker]) post(own, worker);
  }
  return true;
}

// False: one was refused, and has to stay out of the sum.
Result<bool> Server::add_up(OwnPart& own) {
  const auto here = std::ranges::count_if(own.inboxes, &Inbox::is_here);
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
    if (!added) {
      inbox.is_here = false;
      if (Status refused = refuse(worker, added.error()); !refused) return forward_error(refused);
      return false;
    }
    into = Into::kAccumulate;
  }
  return true;
}

Status Server::wait_for_pushes(Deadline deadline) {
  std::vector<Handle> awaited;
  for (const OwnPart& own : own_) {
    if (!own.is_made) add_receives(own, awaited);
  }
  add_blocking_sends(awaited);
  return transport_.wait_any(awaited, deadline);
}

void Server::add_receives(const OwnPart& own, std::vector<Handle>& awaited) const {
  for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
    const Inbox& inbox = own.inboxes[worker];
    if (!inbox.is_here && !inbox.is_closed && !is_dropped_[worker]) awaited.push_back(inbox.receive);
  }
}

}  // namespace deltawire
