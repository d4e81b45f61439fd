// The model, and what changes in it: encoded once, and sent to each worker as fast as it takes it.
#include <algorithm>

#include "server/server_rank.h"

namespace deltawire {

// Sends the model, and is ready for the first pushes.
Status Server::open() {
  auto channel = make_model_channel();
  if (!channel) return forward_error(channel);
  whole_ = std::move(*channel);
  for (OwnPart& own : own_) {
    own.first_change = step_;
    if (Status encoded = encode_whole(own); !encoded) return encoded;
    const Named named = model_.part_of(part(own), own.view.data());
    const std::uint64_t bound = push_->message_bound(std::span(&named, 1), step_);
    for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
      own.inboxes[worker].memory.resize(bound);
      own.outboxes[worker].next = own.outboxes[worker].taken = step_;
      own.outboxes[worker].head = pull_head(Verdict::kCounted);
      send(own, worker, own.whole);
      post(own, worker);
    }
  }
  return {};
}

// The view as one message, which all workers share that need it.
Status Server::encode_whole(OwnPart& own) {
  const Named named = model_.part_of(part(own), own.view.data());
  const auto pieces = whole_->encode(
      std::span(&named, 1), model_.message(own.number, Way::kModel, own.versions(), transport_.rank()));
  if (!pieces) return forward_error(pieces);
  own.whole = std::make_shared<const std::vector<std::byte>>(joined(*pieces));
  own.whole_version = own.versions();
  whole_->commit();
  return {};
}

Status Server::change(OwnPart& own) {
  // The mean is in gradient_.
  const std::span gradient(gradient_.data(), own.view.size());
  if (Status stepped = optimizer_.step(own.key, own.master, gradient); !stepped) return stepped;
  const Named named = model_.part_of(part(own), gradient_.data());
  // With what waits in the residual this is what the view lacks, now: so no rounding of earlier steps stays.
  const std::span<const float> residual = pull_->residual(named.name, named.first);
  for (std::size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = (own.master[i] - own.view[i]) - (residual.empty() ? 0.0F : residual[i]);
  }
  const MessageId id = model_.message(own.number, Way::kPull, step_, transport_.rank());
  const auto pieces = pull_->encode(std::span(&named, 1), id);
  if (!pieces) return forward_error(pieces);
  ++counts_.encodes;
  const Named view = model_.part_of(part(own), own.view.data());
  if (Status seen = pull_->decode(*pieces, std::span(&view, 1), id, Into::kAccumulate, 1.0F); !seen) {
    return seen;
  }
  own.whole.reset();
  own.changes.push_back(std::make_shared<const std::vector<std::byte>>(joined(*pieces)));
  for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
    if (is_dropped_[worker]) continue;
    own.outboxes[worker].verdicts.push_back(counted_[worker] != 0 ? Verdict::kCounted : Verdict::kLate);
  }
  own.is_made = true;
  return send_next(own);
}

Status Server::send_all() {
  for (OwnPart& own : own_) {
    if (Status sent = send_next(own); !sent) return sent;
  }
  return {};
}

// To every worker that has taken what was sent to it: the next change that it lacks or, where those that it
// lacks are more bytes than it, the part as it is now.
Status Server::send_next(OwnPart& own) {
  std::uint64_t oldest = own.versions();
  for (std::size_t worker = 0; worker < own.outboxes.size(); ++worker) {
    if (is_dropped_[worker]) continue;
    if (Status sent = send_next(own, worker); !sent) return sent;
    if (is_dropped_[worker]) continue;
    oldest = std::min(oldest, own.outboxes[worker].next);
  }
  for (; own.first_change < oldest; ++own.first_change) own.changes.pop_front();
  return {};
}

Status Server::send_next(OwnPart& own, std::size_t worker) {
  Outbox& outbox = own.outboxes[worker];
  const bool has_all = outbox.next == own.versions() && (outbox.is_ended || !is_closing_);
  if (outbox.handle == Handle::kNone && has_all) return {};
  if (!transport_.done(outbox.handle)) return {};
  if (const auto gone = transport_.wait(std::exchange(outbox.handle, Handle::kNone), Clock::now()); !gone) {
    return dropped_or(worker, gone.error());
  }
  outbox.body.reset();
  outbox.taken = outbox.next;
  if (outbox.next == own.versions()) {
    if (is_closing_ && !std::exchange(outbox.is_ended, true)) {
      outbox.handle = transport_.post_send(rank_of(worker), model_.tag(own.number, Way::kPull), {});
    }
    return {};
  }
  const Result<bool> is_whole = whole_is_smaller(own, outbox);
  if (!is_whole) return forward_error(is_whole);
  if (*is_whole) {
    outbox.head = pull_head(outbox.verdicts);
    outbox.next = own.versions();
    outbox.verdicts.clear();
    ++counts_.whole_models;
    send(own, worker, own.whole);
    return {};
  }
  outbox.head = pull_head(outbox.verdicts.front());
  outbox.verdicts.pop_front();
  send(own, worker, own.changes[outbox.next++ - own.first_change]);
  return {};
}

// Whether the part itself is fewer bytes than all changes that a worker lacks.
Result<bool> Server::whole_is_smaller(OwnPart& own, const Outbox& outbox) {
  const std::uint64_t lacks = own.versions() - outbox.next;
  if (lacks < 2 || lacks > kVerdictsMax) return false;
  std::uint64_t bytes = 0;
  for (std::uint64_t version = outbox.next; version < own.versions(); ++version) {
    bytes += 1 + own.changes[version - own.first_change]->size();
  }
  if (bytes <= sizeof(float) * own.view.size()) return false;
  if (own.whole_version != own.versions()) {
    if (Status encoded = encode_whole(own); !encoded) return forward_error(encoded);
  }
  return kWholeHeadBytes + lacks + own.whole->size() < bytes;
}

void Server::send(OwnPart& own, std::size_t worker, const Body& body) {
  Outbox& outbox = own.outboxes[worker];
  outbox.body = body;
  const Bytes pieces[] = {Bytes(outbox.head), Bytes(*body)};
  outbox.handle = transport_.post_send(rank_of(worker), model_.tag(own.number, Way::kPull), pieces);
  counts_.pull_bytes += outbox.head.size() + body->size();
}

// Until every worker has taken all but the last `lag` - 1 changes.
Status Server::wait_for_laggards(Deadline deadline, std::uint64_t lag) {
  for (;;) {
    if (Status sent = send_all(); !sent) return sent;
    std::vector<Handle> awaited;
    for (const OwnPart& own : own_) {
      for (std::size_t worker = 0; worker < own.outboxes.size(); ++worker) {
        const Outbox& outbox = own.outboxes[worker];
        if (!is_dropped_[worker] && outbox.taken + lag <= own.versions()) awaited.push_back(outbox.handle);
      }
    }
    if (awaited.empty()) return {};
    if (Status went = transport_.wait_any(awaited, deadline); !went) return went;
  }
}

// Sends that another one waits for.
void Server::add_blocking_sends(std::vector<Handle>& awaited) const {
  for (const OwnPart& own : own_) {
    for (const Outbox& outbox : own.outboxes) {
      if (outbox.handle != Handle::kNone && (outbox.next < own.versions() || is_closing_)) {
        awaited.push_back(outbox.handle);
      }
    }
  }
}

}  // namespace deltawire
