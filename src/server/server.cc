// One server rank. All its parts make the same step; each goes on by itself as its pushes come: average, step
// the optimizer, encode the change once, send it to every worker.
#include <algorithm>

#include "server/server_rank.h"

namespace deltawire {

Status Server::prepare(std::span<const Named> model) {
  auto push = make_channel(options_.push, {.policy = options_.policy});
  if (!push) return forward_error(push);
  auto pull = make_channel(options_.pull, {.policy = options_.policy,
                                           .revert = Revert::kFold,  // as Worker::push_channel
                                           .means = true,
                                           .seed = options_.seed});
  if (!pull) return forward_error(pull);
  push_ = std::move(*push);
  pull_ = std::move(*pull);
  counted_.resize(static_cast<std::size_t>(model_.workers()));
  is_dropped_.resize(counted_.size());
  for (std::size_t number = 0; number < model_.parts().size(); ++number) {
    const ServedPart& part = model_.parts()[number];
    if (part.server != transport_.rank()) continue;
    const auto* values = static_cast<const float*>(model[part.tensor].tensor.values) + part.first;
    OwnPart own{.number = number, .key = model_.name(part) + "@" + std::to_string(part.first)};
    own.view.assign(values, values + part.count);
    own.master = own.view;
    own.inboxes.resize(counted_.size());
    own.outboxes.resize(counted_.size());
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
    for (const Outbox& outbox : own.outboxes) handles.push_back(outbox.handle);
  }
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
    if (Status sent = send_all(); !sent) return forward_error(sent);
    for (OwnPart& own : own_) {
      if (own.is_made) continue;
      const Result<bool> is_ready = collect(own);
      if (!is_ready) return forward_error(is_ready);
      if (!*is_ready && !may_come(own)) {
        if (left == own_.size()) return close(deadline);
        return fail(ErrorCode::kMismatch, "workers have closed in the midst of a step");
      }
      if (!*is_ready) continue;
      has_moved = true;
      const Result<bool> is_averaged = average(own);
      if (!is_averaged) return forward_error(is_averaged);
      if (!*is_averaged) continue;
      if (Status changed = change(own); !changed) return forward_error(changed);
      --left;
    }
    if (left == 0 || has_moved) continue;
    if (Status came = wait_for_pushes(deadline); !came) return forward_error(came);
  }
  commit();
  if (Status gone = wait_for_laggards(deadline, options_.max_lag); !gone) return forward_error(gone);
  return true;
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

// What comes now of a step that none will make is late. Every worker gets the changes that it lacks, and then
// the end.
Result<bool> Server::close(Deadline deadline) {
  is_closing_ = true;
  for (OwnPart& own : own_) {
    for (std::size_t worker = 0; worker < own.inboxes.size(); ++worker) {
      if (!own.inboxes[worker].is_here) continue;
      ++counts_.late_pushes;
      post(own, worker);
    }
  }
  for (;;) {
    if (Status sent = send_all(); !sent) return forward_error(sent);
    std::vector<Handle> awaited;
    for (OwnPart& own : own_) {
      const Result<bool> enough = collect(own);
      if (!enough) return forward_error(enough);
      add_receives(own, awaited);
    }
    add_blocking_sends(awaited);
    if (awaited.empty()) break;
    if (Status moved = transport_.wait_any(awaited, deadline); !moved) return forward_error(moved);
  }
  state_ = State::kClosed;
  return false;
}

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
  set_optional_workers(options, transport);
  return server;
}

}  // namespace deltawire
