// The model, and what changes in it: encoded once, sent to every worker.
#include "server/server_rank.h"

namespace deltawire {

// Sends the model, and is ready for the first pushes.
Status Server::open() {
  auto channel = make_model_channel();
  if (!channel) return forward_error(channel);
  for (OwnPart& own : own_) {
    const Named named = model_.part_of(part(own), own.view.data());
    const auto pieces = (*channel)->encode(std::span(&named, 1),
                                           model_.message(own.number, Way::kModel, step_, transport_.rank()));
    if (!pieces) return forward_error(pieces);
    const auto body = std::make_shared<const std::vector<std::byte>>(joined(*pieces));
    (*channel)->commit();
    const std::uint64_t bound = push_->message_bound(std::span(&named, 1), step_);
    for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
      own.inboxes[worker].memory.resize(bound);
      send(worker, own, Verdict::kCounted, body);
      post(own, worker);
    }
  }
  return {};
}

Status Server::change(OwnPart& own) {
  if (Status averaged = average(own); !averaged) return averaged;
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
  const auto body = std::make_shared<const std::vector<std::byte>>(joined(*pieces));
  for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
    send(worker, own, counted_[worker] != 0 ? Verdict::kCounted : Verdict::kLate, body);
  }
  own.is_made = true;
  return {};
}

// An empty body closes.
void Server::send(std::size_t worker, const OwnPart& own, Verdict verdict,
                  const std::shared_ptr<const std::vector<std::byte>>& body) {
  static constexpr std::byte kVerdicts[] = {std::byte{0}, std::byte{1}};
  const Bytes pieces[] = {Bytes(&kVerdicts[static_cast<std::size_t>(verdict)], 1), Bytes(*body)};
  const std::span<const Bytes> all = body->empty() ? std::span<const Bytes>() : std::span(pieces);
  const Handle handle = transport_.post_send(rank_of(worker), model_.tag(own.number, Way::kPull), all);
  if (!body->empty()) counts_.pull_bytes += 1 + body->size();
  sent_.push_back({handle, body, step_});
}

// Forgets what has left, and waits for what should have left `lag` steps ago.
Status Server::let_go(Deadline deadline, std::uint64_t lag) {
  std::deque<Sent> going;
  for (Sent& sent : sent_) {
    if (!transport_.done(sent.handle) && sent.step + lag > step_) {
      going.push_back(std::move(sent));
      continue;
    }
    if (const auto gone = transport_.wait(sent.handle, deadline); !gone) return forward_error(gone);
  }
  sent_ = std::move(going);
  return {};
}

}  // namespace deltawire
