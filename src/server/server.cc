// One server rank. All its parts make the same step; each goes on by itself as its pushes come: average, step
// the optimizer, encode the change once, send it to every worker.
#include "deltawire/server.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/optimizer.h"
#include "server/posted.h"
#include "server/served_model.h"

namespace deltawire {
namespace {

// Where one worker's pushes of one part come in.
struct Inbox {
  std::vector<std::byte> memory;
  Handle receive = Handle::kNone;
  std::uint64_t bytes = 0;
  bool is_here = false;  // a push of this step, not yet added
  bool is_closed = false;
};

struct OwnPart {
  std::size_t number = 0;  // in the model's list
  std::string key;         // the optimizer's
  std::vector<float> view = {};
  std::vector<float> master = {};
  std::vector<Inbox> inboxes = {};  // by worker
  bool is_made = false;             // in this step
};

struct Sent {
  Handle handle = Handle::kNone;
  std::shared_ptr<const std::vector<std::byte>> body;
  std::uint64_t step = 0;
};

class Server final : public ParameterServer {
 public:
  Server(ServedModel model, Optimizer optimizer, const ServerOptions& options, Transport& transport)
      : model_(std::move(model)),
        optimizer_(std::move(optimizer)),
        options_(options),
        transport_(transport) {}
  ~Server() override {
    if (state_ != State::kClosed)
      abandon(transport_, posted(), "a parameter server ended before its workers");
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Status prepare(std::span<const Named> model);

  Result<bool> step(Deadline deadline) override;
  std::span<const ServedPart> parts() const noexcept override { return served_; }
  std::span<const float> view(std::size_t part) const override { return own_[part].view; }
  std::span<const float> master(std::size_t part) const override { return own_[part].master; }
  Status set_learning_rate(double learning_rate) override {
    return optimizer_.set_learning_rate(learning_rate);
  }
  ServerCounts counts() const noexcept override { return counts_; }

 private:
  enum class State : std::uint8_t { kNew, kOpen, kFailed, kClosed };

  const ServedPart& part(const OwnPart& own) const noexcept { return model_.parts()[own.number]; }
  int rank_of(std::size_t worker) const noexcept { return model_.servers() + static_cast<int>(worker); }
  std::size_t needed() const noexcept { return static_cast<std::size_t>(model_.workers() - options_.backup); }
  std::vector<Handle> posted() const;

  Result<bool> make_step(Deadline deadline);
  Status open();
  void post(OwnPart& own, std::size_t worker);
  Result<bool> collect(OwnPart& own, Deadline deadline);
  Status take(OwnPart& own, std::size_t worker, Deadline deadline);
  bool may_come(const OwnPart& own) const noexcept;
  Status change(OwnPart& own);
  Status average(OwnPart& own);
  void send(std::size_t worker, const OwnPart& own, Verdict verdict,
            const std::shared_ptr<const std::vector<std::byte>>& body);
  Status wait_for_pushes(Deadline deadline);
  Status let_go(Deadline deadline, std::uint64_t lag);
  void commit();
  Result<bool> close(Deadline deadline);

  ServedModel model_;
  Optimizer optimizer_;
  ServerOptions options_;
  Transport& transport_;
  std::unique_ptr<Channel> push_;  // decodes
  std::unique_ptr<Channel> pull_;
  std::vector<ServedPart> served_;
  std::vector<OwnPart> own_;
  std::vector<float> gradient_;  // of the part that is at work, then its change
  std::vector<char> counted_;    // of that part, by worker
  std::deque<Sent> sent_;
  std::uint64_t step_ = 0;
  State state_ = State::kNew;
  ServerCounts counts_;
};

Status Server::prepare(std::span<const Named> model) {
  auto push = make_channel(options_.push, {.policy = options_.policy});
  if (!push) return forward_error(push);
  auto pull = make_channel(options_.pull, {.policy = options_.policy, .means = true, .seed = options_.seed});
  if (!pull) return forward_error(pull);
  push_ = std::move(*push);
  pull_ = std::move(*pull);
  counted_.resize(static_cast<std::size_t>(model_.workers()));
  for (std::size_t number = 0; number < model_.parts().size(); ++number) {
    const ServedPart& part = model_.parts()[number];
    if (part.server != transport_.rank()) continue;
    const auto* values = static_cast<const float*>(model[part.tensor].tensor.values) + part.first;
    OwnPart own{.number = number, .key = model_.name(part) + "@" + std::to_string(part.first)};
    own.view.assign(values, values + part.count);
    own.master = own.view;
    own.inboxes.resize(counted_.size());
    own_.push_back(std::move(own));
    served_.push_back(part);
    gradient_.resize(std::max<std::size_t>(gradient_.size(), part.count));
  }
  return {};
}

std::vector<Handle> Server::posted() const {
  std::vector<Handle> handles;
  for (const OwnPart& own : own_) {
    for (const Inbox& inbox : own.inboxes) handles.push_back(inbox.receive);
  }
  for (const Sent& sent : sent_) handles.push_back(sent.handle);
  return handles;
}

Result<bool> Server::step(Deadline deadline) {
  if (state_ == State::kFailed || state_ == State::kClosed) {
    return fail(ErrorCode::kState, "this parameter server has ended; make another one");
  }
  Result<bool> made = make_step(deadline);
  if (!made) {
    state_ = State::kFailed;
    pull_->revert();
    transport_.abort(made.error());
  }
  return made;
}

Result<bool> Server::make_step(Deadline deadline) {
  if (state_ == State::kNew) {
    if (Status opened = open(); !opened) return forward_error(opened);
    state_ = State::kOpen;
  }
  if (own_.empty()) {  // more servers than parts
    state_ = State::kClosed;
    return false;
  }
  for (OwnPart& own : own_) own.is_made = false;
  for (std::size_t left = own_.size(); left > 0;) {
    bool has_moved = false;
    for (OwnPart& own : own_) {
      if (own.is_made) continue;
      const Result<bool> is_ready = collect(own, deadline);
      if (!is_ready) return forward_error(is_ready);
      if (!*is_ready && !may_come(own)) {
        if (left == own_.size()) return close(deadline);
        return fail(ErrorCode::kMismatch, "workers have closed in the midst of a step");
      }
      if (!*is_ready) continue;
      if (Status changed = change(own); !changed) return forward_error(changed);
      has_moved = true;
      --left;
    }
    if (left == 0 || has_moved) continue;
    if (Status came = wait_for_pushes(deadline); !came) return forward_error(came);
  }
  commit();
  if (Status gone = let_go(deadline, options_.max_lag); !gone) return forward_error(gone);
  return true;
}

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
  if (!frame) return fail(frame.error().code, "a push: " + frame.error().message, rank_of(worker));
  const std::uint64_t step = frame->header().message.step;
  if (step > step_) {
    return fail(ErrorCode::kMismatch,
                "rank " + std::to_string(rank_of(worker)) + " pushes for step " + std::to_string(step) +
                    " in step " + std::to_string(step_),
                rank_of(worker));
  }
  inbox.is_here = step == step_;
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
    if (!added) return fail(added.error().code, "a push: " + added.error().message, rank_of(worker));
    into = Into::kAccumulate;
    post(own, worker);
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

Status Server::wait_for_pushes(Deadline deadline) {
  std::vector<Handle> awaited;
  for (const OwnPart& own : own_) {
    if (own.is_made) continue;
    for (const Inbox& inbox : own.inboxes) {
      if (!inbox.is_here && !inbox.is_closed) awaited.push_back(inbox.receive);
    }
  }
  return transport_.wait_any(awaited, deadline);
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

void Server::commit() {
  pull_->commit();
  for (OwnPart& own : own_) {
    // A codec that keeps nothing has sent all that will ever be sent of the change.
    if (pull_->residual(model_.name(part(own)), part(own).first).empty()) own.master = own.view;
  }
  ++step_;
  ++counts_.steps;
}

Result<bool> Server::close(Deadline deadline) {
  const auto nothing = std::make_shared<const std::vector<std::byte>>();
  for (const OwnPart& own : own_) {
    for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
      send(worker, own, Verdict::kLate, nothing);
    }
  }
  ++step_;  // what comes now of the step that none will make is late
  for (OwnPart& own : own_) {
    for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
      Inbox& inbox = own.inboxes[worker];
      if (inbox.is_here) {
        ++counts_.late_pushes;
        post(own, worker);
      }
      while (!inbox.is_closed) {
        if (Status taken = take(own, worker, deadline); !taken) return forward_error(taken);
      }
    }
  }
  if (Status gone = let_go(deadline, 0); !gone) return forward_error(gone);
  state_ = State::kClosed;
  return false;
}

}  // namespace

Result<std::unique_ptr<ParameterServer>> make_server(std::span<const Named> model, std::string_view optimizer,
                                                     const ServerOptions& options, Transport& transport) {
  Result<ServedModel> served = ServedModel::make(model, options, transport);
  if (!served) return forward_error(served);
  if (transport.rank() >= options.servers) {
    return fail(ErrorCode::kInvalidArgument,
                "rank " + std::to_string(transport.rank()) + " is a worker; it takes make_worker");
  }
  Result<Optimizer> made = make_optimizer(optimizer);
  if (!made) return forward_error(made);
  auto server = std::make_unique<Server>(std::move(*served), std::move(*made), options, transport);
  if (Status prepared = server->prepare(model); !prepared) return forward_error(prepared);
  return server;
}

}  // namespace deltawire
