// A worker's steps: every tensor is pushed, then pulled.
#include <algorithm>
#include <string>

#include "server/worker_rank.h"

namespace deltawire {

Status Worker::prepare(std::span<const Named> model) {
  auto pull = make_channel(options_.pull, {.policy = options_.policy, .means = true});
  if (!pull) return forward_error(pull);
  pull_ = std::move(*pull);
  for (const Named& tensor : model) values_.push_back(static_cast<float*>(tensor.tensor.values));
  std::size_t number = 0;
  for (std::size_t tensor = 0; tensor < model.size(); ++tensor) {
    first_part_.push_back(number);
    for (; number < model_.parts().size() && model_.parts()[number].tensor == tensor; ++number) {
      auto channel = push_channel();
      if (!channel) return forward_error(channel);
      parts_.push_back({.number = number, .part = model_.parts()[number], .channel = std::move(*channel)});
      input_.resize(std::max<std::size_t>(input_.size(), parts_.back().part.count));
    }
  }
  first_part_.push_back(number);
  return {};
}

Status Worker::check_open(std::size_t tensor) const {
  if (state_ != State::kOpen) {
    return fail(ErrorCode::kState, state_ == State::kNew ? "open() comes before all else"
                                                         : "this worker has ended; make another one");
  }
  if (tensor >= model_.tensor_count()) {
    return fail(ErrorCode::kInvalidArgument, "tensor " + std::to_string(tensor) + " of a model of " +
                                                 std::to_string(model_.tensor_count()));
  }
  return {};
}

// An error of the exchange ends it everywhere.
Status Worker::settled(Status status) {
  if (!status) {
    state_ = State::kFailed;
    for (WorkerPart& part : parts_) part.channel->revert();
    transport_.abort(status.error());
  }
  return status;
}

Status Worker::open(Deadline deadline) {
  if (state_ != State::kNew) return fail(ErrorCode::kState, "this worker is open already");
  state_ = State::kOpen;
  return settled(fetch(deadline));
}

Status Worker::push(std::size_t tensor, std::span<const float> gradient) {
  if (Status is_open = check_open(tensor); !is_open) return is_open;
  if (gradient.size() != model_.elements(tensor)) {
    return fail(ErrorCode::kInvalidArgument, "a gradient of " + std::to_string(gradient.size()) +
                                                 " elements for a tensor of " +
                                                 std::to_string(model_.elements(tensor)));
  }
  for (WorkerPart& part : parts_of(tensor)) {
    if (part.pushes > step_) {
      return fail(ErrorCode::kState,
                  "tensor '" + model_.name(part.part) + "' was pushed in this step already");
    }
    if (Status pushed = push_part(part, gradient.subspan(part.part.first, part.part.count)); !pushed) {
      return settled(pushed);
    }
  }
  return {};
}

Status Worker::pull(std::size_t tensor, Deadline deadline) {
  if (Status is_open = check_open(tensor); !is_open) return is_open;
  const std::uint64_t wanted = step_ + 1 - std::min(options_.staleness, step_ + 1);
  for (WorkerPart& part : parts_of(tensor)) {
    if (part.pushes <= step_ && !part.is_closed) {
      return fail(ErrorCode::kState, "tensor '" + model_.name(part.part) + "' was not pushed in this step");
    }
    if (Status pulled = settled(advance(part, wanted, deadline)); !pulled) return pulled;
  }
  return {};
}

Status Worker::pull(Deadline deadline) {
  for (std::size_t tensor = 0; tensor < model_.tensor_count(); ++tensor) {
    if (Status pulled = pull(tensor, deadline); !pulled) return pulled;
  }
  if (Status is_open = check_open(0); !is_open && model_.tensor_count() > 0) return is_open;
  return settled(pull_all(deadline));
}

bool Worker::all_have_come() const {
  return !parts_.empty() && std::ranges::all_of(parts_, [this](const WorkerPart& part) {
    return !part.is_closed && transport_.done(part.receive);
  });
}

// Brings all parts to the newest version that one of them has, or to the end. A whole part may lead beyond
// it: then the others follow.
Result<std::uint64_t> Worker::level_parts(Deadline deadline) {
  std::uint64_t newest = version_;
  const auto is_behind = [&](const WorkerPart& part) {
    return has_ended_ ? !part.is_closed : part.steps < newest;
  };
  for (const WorkerPart& part : parts_) newest = std::max(newest, part.steps);
  while (std::ranges::any_of(parts_, is_behind)) {
    for (WorkerPart& part : parts_) {
      if (Status there = advance(part, has_ended_ ? kToTheEnd : newest, deadline); !there)
        return forward_error(there);
      newest = std::max(newest, part.steps);
    }
  }
  return newest;
}

// Takes what has come for all parts, and ends with all of them at one version.
Status Worker::pull_all(Deadline deadline) {
  while ((may_be_late() || options_.staleness > 0) && all_have_come()) {
    for (WorkerPart& part : parts_) {
      if (Status applied = apply(part, deadline); !applied) return applied;
    }
  }
  const auto newest = level_parts(deadline);
  if (!newest) return forward_error(newest);
  version_ = *newest;
  // Where the servers have closed without it, the step is not made.
  const std::uint64_t made = has_ended_ ? step_ : step_ + 1;
  if (std::max(made, version_) > step_) ++counts_.steps;
  if (version_ > step_ + 1) counts_.skipped_steps += version_ - step_ - 1;
  step_ = std::max(made, version_);
  return {};
}

Status Worker::catch_up(Deadline deadline) {
  if (state_ == State::kNew) return {};
  if (Status is_open = check_open(0); !is_open && model_.tensor_count() > 0) return is_open;
  for (WorkerPart& part : parts_) {
    if (Status level = settled(advance(part, step_, deadline)); !level) return level;
  }
  if (!has_ended_) version_ = std::max(version_, step_);
  return {};
}

Status Worker::close(Deadline deadline) {
  if (Status is_open = check_open(0); !is_open && model_.tensor_count() > 0) return is_open;
  Status left = settled(leave(deadline));
  if (left) state_ = State::kClosed;
  return left;
}

Status Worker::leave(Deadline deadline) {
  std::vector<Handle> sends;
  for (const WorkerPart& part : parts_) {
    sends.push_back(transport_.post_send(part.part.server, model_.tag(part.number, Way::kPush), {}));
  }
  for (WorkerPart& part : parts_) {
    if (Status ended = advance(part, kToTheEnd, deadline); !ended) return ended;
    version_ = std::max(version_, part.steps);
  }
  step_ = std::max(step_, version_);
  for (const Handle send : sends) {
    if (const auto gone = transport_.wait(send, deadline); !gone) return forward_error(gone);
  }
  return {};
}

Status Worker::add_residual(std::size_t tensor, std::span<float> sum) const {
  if (tensor >= model_.tensor_count() || sum.size() != model_.elements(tensor)) {
    return fail(ErrorCode::kInvalidArgument, "no such tensor, or one of another count");
  }
  for (std::size_t at = first_part_[tensor]; at < first_part_[tensor + 1]; ++at) {
    const WorkerPart& part = parts_[at];
    const auto add = [&](std::span<const float> waits) {
      for (std::size_t i = 0; i < waits.size(); ++i) sum[part.part.first + i] += waits[i];
    };
    add(part.channel->residual(model_.name(part.part), part.part.first));
    add(part.held);
  }
  return {};
}

Result<std::unique_ptr<ParameterWorker>> make_worker(std::span<const Named> model,
                                                     const ServerOptions& options, Transport& transport) {
  Result<ServedModel> served = ServedModel::make(model, options, transport);
  if (!served) return forward_error(served);
  if (transport.rank() < options.servers) {
    return fail(ErrorCode::kInvalidArgument,
                "rank " + std::to_string(transport.rank()) + " is a server; it takes make_server");
  }
  auto worker = std::make_unique<Worker>(std::move(*served), options, transport);
  if (Status prepared = worker->prepare(model); !prepared) return forward_error(prepared);
  set_optional_workers(options, transport);
  return worker;
}

}  // namespace deltawire
