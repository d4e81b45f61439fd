// One worker rank. Each part has a channel of its own, a compression context as in 3LC, section 3: so a push
// that came too late is taken back alone, and its gradient waits in its residual.
#include <algorithm>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/server.h"
#include "server/posted.h"
#include "server/served_model.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kToTheEnd = std::numeric_limits<std::uint64_t>::max();

enum class Pushed : std::uint8_t {
  kNo,
  kSent,  // its channel's transaction is open
  kKept,  // too late to be sent
};

struct WorkerPart {
  std::size_t number = 0;
  ServedPart part;
  std::unique_ptr<Channel> channel;
  // What a codec without a residual would lose of a late push: its input. Added to the next one.
  std::vector<float> held = {};
  std::vector<std::byte> memory = {};
  Handle receive = Handle::kNone;
  Handle send = Handle::kNone;
  std::uint64_t steps = 0;  // that its parameters have
  Pushed pushed = Pushed::kNo;
  bool is_closed = false;  // by its server
};

class Worker final : public ParameterWorker {
 public:
  Worker(ServedModel model, const ServerOptions& options, Transport& transport)
      : model_(std::move(model)), options_(options), transport_(transport) {}
  ~Worker() override {
    if (state_ != State::kOpen && state_ != State::kFailed) return;
    std::vector<Handle> posted;
    for (const WorkerPart& part : parts_) posted.insert(posted.end(), {part.receive, part.send});
    abandon(transport_, posted, "a worker ended without closing");
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Status prepare(std::span<const Named> model);

  Status open(Deadline deadline) override;
  Status push(std::size_t tensor, std::span<const float> gradient) override;
  Status pull(std::size_t tensor, Deadline deadline) override;
  Status pull(Deadline deadline) override;
  Status close(Deadline deadline) override;
  std::uint64_t step() const noexcept override { return step_; }
  bool has_ended() const noexcept override { return has_ended_; }
  Status add_residual(std::size_t tensor, std::span<float> sum) const override;
  ServerCounts counts() const noexcept override { return counts_; }

 private:
  enum class State : std::uint8_t { kNew, kOpen, kFailed, kClosed };

  Status check_open(std::size_t tensor) const;
  Status settled(Status status);
  float* parameters(const WorkerPart& part) const noexcept {
    return values_[part.part.tensor] + part.part.first;
  }
  Named named(const WorkerPart& part, float* values) const noexcept {
    return model_.part_of(part.part, values);
  }
  std::span<WorkerPart> parts_of(std::size_t tensor) noexcept {
    return std::span(parts_).subspan(first_part_[tensor], first_part_[tensor + 1] - first_part_[tensor]);
  }
  Status fetch(Deadline deadline);
  void post(WorkerPart& part);
  Status push_part(WorkerPart& part, std::span<const float> gradient);
  Status keep(WorkerPart& part, std::span<float> input);
  Status advance(WorkerPart& part, std::uint64_t steps, Deadline deadline);
  Status apply(WorkerPart& part, Deadline deadline);
  Status settle(WorkerPart& part, Verdict verdict, Deadline deadline);
  Status pull_all(Deadline deadline);
  Status leave(Deadline deadline);

  ServedModel model_;
  ServerOptions options_;
  Transport& transport_;
  std::unique_ptr<Channel> pull_;  // decodes
  std::vector<float*> values_;     // by tensor
  std::vector<std::size_t> first_part_;
  std::vector<WorkerPart> parts_;
  std::vector<float> input_;
  std::uint64_t step_ = 0;
  bool has_ended_ = false;
  State state_ = State::kNew;
  ServerCounts counts_;
};

Status Worker::prepare(std::span<const Named> model) {
  auto pull = make_channel(options_.pull, {.policy = options_.policy, .means = true});
  if (!pull) return forward_error(pull);
  pull_ = std::move(*pull);
  for (const Named& tensor : model) values_.push_back(static_cast<float*>(tensor.tensor.values));
  std::size_t number = 0;
  for (std::size_t tensor = 0; tensor < model.size(); ++tensor) {
    first_part_.push_back(number);
    for (; number < model_.parts().size() && model_.parts()[number].tensor == tensor; ++number) {
      auto channel = make_channel(options_.push, {.policy = options_.policy, .seed = options_.seed});
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

Status Worker::push(std::size_t tensor, std::span<const float> gradient) {
  if (Status is_open = check_open(tensor); !is_open) return is_open;
  if (gradient.size() != model_.elements(tensor)) {
    return fail(ErrorCode::kInvalidArgument, "a gradient of " + std::to_string(gradient.size()) +
                                                 " elements for a tensor of " +
                                                 std::to_string(model_.elements(tensor)));
  }
  for (WorkerPart& part : parts_of(tensor)) {
    if (part.pushed != Pushed::kNo || part.steps != step_) {
      return fail(ErrorCode::kState,
                  "tensor '" + model_.name(part.part) + "' was pushed in this step already");
    }
    if (Status pushed = push_part(part, gradient.subspan(part.part.first, part.part.count)); !pushed) {
      return settled(pushed);
    }
  }
  return {};
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

Status Worker::pull(std::size_t tensor, Deadline deadline) {
  if (Status is_open = check_open(tensor); !is_open) return is_open;
  for (WorkerPart& part : parts_of(tensor)) {
    if (part.pushed == Pushed::kNo && part.steps == step_ && !part.is_closed) {
      return fail(ErrorCode::kState, "tensor '" + model_.name(part.part) + "' was not pushed in this step");
    }
    if (Status pulled = settled(advance(part, step_ + 1, deadline)); !pulled) return pulled;
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

// Whatever came for one part will come for all: servers make whole steps.
Status Worker::pull_all(Deadline deadline) {
  std::uint64_t newest = step_;
  for (WorkerPart& part : parts_) {
    while (options_.backup > 0 && !part.is_closed && transport_.done(part.receive)) {
      if (Status applied = apply(part, deadline); !applied) return applied;
    }
    newest = std::max(newest, part.steps);
  }
  for (WorkerPart& part : parts_) {
    if (Status level = advance(part, has_ended_ ? kToTheEnd : newest, deadline); !level) return level;
    newest = std::max(newest, part.steps);
  }
  if (newest > step_ + 1) counts_.skipped_steps += newest - step_ - 1;
  counts_.steps += newest > step_ ? 1 : 0;
  step_ = newest;
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
    step_ = std::max(step_, part.steps);
  }
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

}  // namespace

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
  return worker;
}

}  // namespace deltawire
