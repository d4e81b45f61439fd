#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "channel/distinct_tensors.h"
#include "deltawire/server.h"
#include "server/part_worker.h"
#include "server/served_model.h"

namespace deltawire {

class Worker final : public ParameterWorker {
 public:
  Worker(ServedModel model, const ServerOptions& options, ServedRules rules, Transport& transport)
      : run_{.model = std::move(model),
             .options = options,
             .transport = transport,
             .rules = std::move(rules)} {}
  ~Worker() override {
    if (state_ != State::kOpen && state_ != State::kFailed) return;
    std::vector<Handle> posted = closes_;
    for (const auto& part : parts_) part->add_posted(posted);
    abandon(run_.transport, posted, "a worker ended without closing");
  }

  Status prepare(std::span<const Named> model) {
    ASSIGN_OR_RETURN(run_.pull,
                     make_channel(run_.options.pull, {.policy = run_.options.policy, .means = true}));
    ASSIGN_OR_RETURN(run_.whole, make_model_channel());
    const std::span<const ServedPart> parts = run_.model.parts();
    std::size_t number = 0;
    for (std::size_t tensor = 0; tensor < model.size(); ++tensor) {
      first_part_.push_back(number);
      auto* values = static_cast<float*>(model[tensor].tensor.values);
      for (; number < parts.size() && parts[number].tensor == tensor; ++number) {
        ASSIGN_OR_RETURN(auto channel, run_.make_push_channel());
        parts_.push_back(
            std::make_unique<PartWorker>(run_, number, values + parts[number].first, std::move(channel)));
        run_.input.resize(std::max<std::size_t>(run_.input.size(), parts[number].count));
      }
    }
    first_part_.push_back(number);
    assert(number == parts.size() && first_part_.size() == model.size() + 1);
    return {};
  }

  Status open(Deadline deadline) override {
    if (state_ != State::kNew) return wrong_state("this worker is open already");
    state_ = State::kOpen;
    return settled(fetch(deadline));
  }

  Status push(std::size_t tensor, std::span<const float> gradient) override {
    RETURN_IF_ERROR(check_open(tensor));
    if (gradient.size() != run_.model.elements(tensor)) {
      return invalid("a gradient of " + std::to_string(gradient.size()) + " elements for a tensor of " +
                     std::to_string(run_.model.elements(tensor)));
    }
    for (const auto& part : parts_of(tensor)) {
      if (part->pushes() > run_.step) {
        return wrong_state("tensor '" + run_.model.name(part->part()) + "' was pushed in this step already");
      }
      if (Status pushed = part->push(gradient.subspan(part->part().first, part->part().count)); !pushed) {
        return settled(pushed);
      }
    }
    return {};
  }

  Status pull(std::size_t tensor, Deadline deadline) override {
    RETURN_IF_ERROR(check_open(tensor));
    const std::uint64_t wanted = run_.step + 1 - std::min(run_.options.staleness, run_.step + 1);
    for (const auto& part : parts_of(tensor)) {
      if (part->pushes() <= run_.step && !part->is_closed()) {
        return wrong_state("tensor '" + run_.model.name(part->part()) + "' was not pushed in this step");
      }
      RETURN_IF_ERROR(settled(part->advance(wanted, deadline)));
    }
    return {};
  }

  Status pull(Deadline deadline) override {
    for (std::size_t tensor = 0; tensor < run_.model.tensor_count(); ++tensor) {
      RETURN_IF_ERROR(pull(tensor, deadline));
    }
    RETURN_IF_ERROR(check_any_open());
    return settled(pull_all(deadline));
  }

  Status catch_up(Deadline deadline) override {
    if (state_ == State::kNew) return {};
    RETURN_IF_ERROR(check_any_open());
    for (const auto& part : parts_) {
      RETURN_IF_ERROR(settled(part->advance(run_.step, deadline)));
    }
    if (!run_.has_ended) version_ = std::max(version_, run_.step);
    return {};
  }

  Status close(Deadline deadline) override {
    RETURN_IF_ERROR(check_any_open());
    Status left = settled(leave(deadline));
    if (left) state_ = State::kClosed;
    return left;
  }

  std::uint64_t step() const noexcept override { return run_.step; }
  std::uint64_t version() const noexcept override { return version_; }
  bool has_ended() const noexcept override { return run_.has_ended; }

  Status add_residual(std::size_t tensor, std::span<float> sum) const override {
    if (tensor >= run_.model.tensor_count() || sum.size() != run_.model.elements(tensor)) {
      return invalid("no such tensor, or one of another count");
    }
    for (const auto& part : parts_of(tensor)) {
      part->add_residual(sum.subspan(part->part().first, part->part().count));
    }
    return {};
  }

  ServerCounts counts() const noexcept override { return run_.counts; }

  Result<std::vector<std::byte>> save() const override {
    StateWriter writer(head());
    for (const auto& part : parts_) {
      RETURN_IF_ERROR(part->save(writer));
    }
    return writer.finish();
  }

  Status load(Bytes state) override {
    if (state_ != State::kNew) return wrong_state("load() comes before open()");
    ASSIGN_OR_RETURN(StateReader reader, StateReader::open(state, head()));
    std::vector<PartWorker::Saved> saved;
    for (const auto& part : parts_) {
      ASSIGN_OR_RETURN(saved.emplace_back(), part->read(reader));
    }
    RETURN_IF_ERROR(reader.end());
    for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i]->load(std::move(saved[i]));
    run_.step = reader.step();  // open() has the servers'
    return {};
  }

 private:
  enum class State : std::uint8_t { kNew, kOpen, kFailed, kClosed };
  using Parts = std::vector<std::unique_ptr<PartWorker>>;

  Status check_open(std::size_t tensor) const {
    if (state_ != State::kOpen) {
      return wrong_state(state_ == State::kNew ? "open() comes before all else"
                                               : "this worker has ended; make another one");
    }
    if (tensor >= run_.model.tensor_count()) {
      return invalid("tensor " + std::to_string(tensor) + " of a model of " +
                     std::to_string(run_.model.tensor_count()));
    }
    return {};
  }

  // As check_open(); a model without tensors has none to ask for.
  Status check_any_open() const { return run_.model.tensor_count() > 0 ? check_open(0) : Status(); }

  StateHead head() const {
    if (parts_.empty()) return {StateOf::kWorker, 0, 0, run_.step};
    std::vector<Named> parts;
    for (const auto& part : parts_) parts.push_back(part->named(nullptr));
    return {StateOf::kWorker, parts_.size(), state_hash(parts_.front()->channel(), *run_.pull, parts),
            run_.step};
  }

  // An error of the exchange ends it everywhere.
  Status settled(Status status) {
    if (!status) {
      state_ = State::kFailed;
      for (const auto& part : parts_) part->revert();
      run_.transport.abort(status.error());
    }
    return status;
  }

  std::span<const Parts::value_type> parts_of(std::size_t tensor) const noexcept {
    return std::span(parts_).subspan(first_part_[tensor], first_part_[tensor + 1] - first_part_[tensor]);
  }

  Status fetch(Deadline deadline) {
    for (const auto& part : parts_) part->post();
    for (const auto& part : parts_) {
      RETURN_IF_ERROR(part->fetch(*parts_.front(), deadline));
    }
    if (!parts_.empty()) run_.step = version_ = parts_.front()->steps();
    return {};
  }

  bool all_have_come() const {
    return !parts_.empty() &&
           std::ranges::all_of(parts_, [](const Parts::value_type& part) { return part->has_come(); });
  }

  // Takes what has come for all parts, and ends with all of them at one version.
  Status pull_all(Deadline deadline) {
    while ((run_.may_be_late() || run_.options.staleness > 0) && all_have_come()) {
      for (const auto& part : parts_) {
        RETURN_IF_ERROR(part->apply(deadline));
      }
    }
    ASSIGN_OR_RETURN(const auto newest, level_parts(deadline));
    assert(newest >= version_);
    version_ = newest;
    // Where the servers have closed without it, the step is not made.
    const std::uint64_t made = run_.has_ended ? run_.step : run_.step + 1;
    if (std::max(made, version_) > run_.step) ++run_.counts.steps;
    if (version_ > run_.step + 1) run_.counts.skipped_steps += version_ - run_.step - 1;
    run_.step = std::max(made, version_);
    return {};
  }

  // Brings all parts to the newest version that one of them has, or to the end. A whole part may lead beyond
  // it: then the others follow.
  //
  // The end of one server is that of all, once they know that no push follows: where a worker was lost, some
  // of them may have gone on without it while it had closed for others.
  Result<std::uint64_t> level_parts(Deadline deadline) {
    std::uint64_t newest = version_;
    const auto is_behind = [&](const Parts::value_type& part) {
      return run_.has_ended ? !part->is_closed() : part->steps() < newest;
    };
    for (const auto& part : parts_) newest = std::max(newest, part->steps());
    while (std::ranges::any_of(parts_, is_behind)) {
      for (const auto& part : parts_) {
        if (run_.has_ended) say_close();
        RETURN_IF_ERROR(run_.has_ended ? part->advance(kToTheEnd, deadline) : part->follow(newest, deadline));
        newest = std::max(newest, part->steps());
      }
    }
    return newest;
  }

  // Tells the servers, once, that no push follows.
  void say_close() {
    if (!closes_.empty()) return;
    for (const auto& part : parts_) closes_.push_back(part->close());
  }

  Status leave(Deadline deadline) {
    say_close();
    for (const auto& part : parts_) {
      RETURN_IF_ERROR(part->advance(kToTheEnd, deadline));
      version_ = std::max(version_, part->steps());
    }
    RETURN_IF_ERROR(check_whole());
    run_.step = std::max(run_.step, version_);
    for (Handle& send : closes_) {
      RETURN_IF_ERROR(run_.transport.wait(std::exchange(send, Handle::kNone), deadline));
    }
    return {};
  }

  // Where the last workers were lost while they pushed a step, some servers have made it and others have not.
  // Workers that have found this are lost, too, and blame who was lost before.
  Status check_whole() const {
    const auto behind =
        std::ranges::find_if(parts_, [this](const auto& part) { return part->steps() < version_; });
    if (behind == parts_.end()) return {};
    int lost = kNoSuspect;
    for (int rank = run_.options.servers; rank < run_.transport.world_size(); ++rank) {
      if (const auto why = run_.transport.departure_of(rank)) lost = why->suspect < 0 ? rank : why->suspect;
    }
    return fail(ErrorCode::kPeerLost,
                "rank " + std::to_string((*behind)->part().server) + " ended after " +
                    std::to_string((*behind)->steps()) + " steps, others after " + std::to_string(version_) +
                    ", as workers were lost in the midst of a step; go on from a saved state",
                lost);
  }

  WorkerRun run_;
  std::vector<std::size_t> first_part_;  // by tensor
  Parts parts_;
  std::vector<Handle> closes_;  // sends that say so
  std::uint64_t version_ = 0;
  State state_ = State::kNew;
};

Result<std::unique_ptr<ParameterWorker>> make_worker(std::span<const Named> model,
                                                     const ServerOptions& options, Transport& transport) {
  ASSIGN_OR_RETURN(const ServerOptions fits, fitted_to(options, transport.world_size()));
  ASSIGN_OR_RETURN(ServedModel served, ServedModel::make(model, options, transport));
  if (transport.rank() < options.servers) {
    return invalid("rank " + std::to_string(transport.rank()) + " is a server; it takes make_server");
  }
  RETURN_IF_ERROR(check_apart(model));
  ASSIGN_OR_RETURN(ServedRules rules, ServedRules::make(fits));
  auto worker = std::make_unique<Worker>(std::move(served), fits, std::move(rules), transport);
  RETURN_IF_ERROR(worker->prepare(model));
  set_optional_workers(options, transport);
  return worker;
}

}  // namespace deltawire
