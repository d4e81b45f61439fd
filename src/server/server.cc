// Each part goes on by itself as its pushes come: average, step the optimizer, encode the change once, send
// it to every worker.
#include "deltawire/server.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "deltawire/optimizer.h"
#include "deltawire/optimizer_rules.h"
#include "server/part_server.h"
#include "server/saved_state.h"
#include "server/served_model.h"
#include "server/served_rules.h"

namespace deltawire {

namespace {

struct SavedPart {
  std::vector<float> view;
  std::vector<float> master;
};

Result<SavedPart> read_part(StateReader& reader, const PartServer& part) {
  ASSIGN_OR_RETURN(const std::uint64_t number, reader.number());
  ASSIGN_OR_RETURN(const std::uint64_t count, reader.number());
  if (number != part.number() || count != part.view().size()) {
    return corrupt("a server's state: a part of another place or count");
  }
  ASSIGN_OR_RETURN(std::vector<float> view, reader.floats(count));
  ASSIGN_OR_RETURN(std::vector<float> master, reader.floats(count));
  return SavedPart{std::move(view), std::move(master)};
}

}  // namespace

Result<ServerOptions> fitted_to(ServerOptions options, int world_size) {
  RETURN_IF_ERROR(check_options(options, world_size));
  if (options.rules_of.empty()) return options;
  ASSIGN_OR_RETURN(const OptimizerSettings settings, parse_optimizer(options.rules_of));
  for (std::string* const codecs : {&options.push, &options.pull}) {
    ASSIGN_OR_RETURN(const Spec spec, ServedRules::spec_of(*codecs));
    ASSIGN_OR_RETURN(Spec fits, fitted_to(spec, OptimizerTraits::of(settings), world_size));
    *codecs = std::move(fits.codecs);
  }
  return options;
}

Result<std::vector<std::string>> server_warnings(std::string_view optimizer, const ServerOptions& options) {
  ASSIGN_OR_RETURN(const auto settings, parse_optimizer(optimizer));
  ASSIGN_OR_RETURN(const auto push, ServedRules::spec_of(options.push));
  const auto traits = OptimizerTraits::of(settings);
  const bool rules_apply = !options.rules_of.empty();
  std::vector<std::string> texts = optimizer_warnings(push, traits, OptimizerPlace::kServer, rules_apply);
  for (const SpecRule& rule : push.rules) {
    const OptimizerRule found = optimizer_rule(rule, traits, OptimizerPlace::kServer);
    if (rules_apply && !found.remark.empty()) texts.push_back(found.remark);
  }
  return texts;
}

class Server final : public ParameterServer {
 public:
  Server(ServedModel model, Optimizer optimizer, const ServerOptions& options, ServedRules rules,
         Transport& transport)
      : run_{.model = std::move(model),
             .optimizer = std::move(optimizer),
             .options = options,
             .transport = transport,
             .workers = WorkerGroup(transport.world_size() - options.servers, options),
             .rules = std::move(rules)} {}
  ~Server() override {
    if (state_ != State::kClosed)
      abandon(run_.transport, posted(), "a parameter server ended before its workers");
  }

  Status prepare(std::span<const Named> model) {
    const ServerOptions& options = run_.options;
    ASSIGN_OR_RETURN(run_.push, make_channel(options.push, {.policy = options.policy}));
    ASSIGN_OR_RETURN(
        run_.pull, make_channel(options.pull, {.policy = options.policy,
                                               .revert = Revert::kFold,  // as in WorkerRun::make_push_channel
                                               .means = true,
                                               .forgets = false,
                                               .seed = options.seed}));
    ASSIGN_OR_RETURN(run_.whole, make_model_channel());
    for (std::size_t number = 0; number < run_.model.parts().size(); ++number) {
      const ServedPart& part = run_.model.parts()[number];
      if (part.server != run_.transport.rank()) continue;
      const auto* values = static_cast<const float*>(model[part.tensor].tensor.values) + part.first;
      parts_.push_back(
          std::make_unique<PartServer>(run_, number, std::vector<float>(values, values + part.count)));
      served_.push_back(part);
      run_.gradient.resize(std::max<std::size_t>(run_.gradient.size(), part.count));
    }
    return {};
  }

  Result<bool> step(Deadline deadline) override {
    if (state_ == State::kFailed || state_ == State::kClosed) {
      return wrong_state("this parameter server has ended; make another one");
    }
    Result<bool> made = make_step(deadline);
    if (!made) {
      state_ = State::kFailed;
      run_.pull->revert();
      run_.transport.abort(made.error());
    }
    return made;
  }

  std::span<const ServedPart> parts() const noexcept override { return served_; }
  std::span<const float> view(std::size_t part) const override { return parts_[part]->view(); }
  std::span<const float> master(std::size_t part) const override { return parts_[part]->master(); }
  Status set_learning_rate(double learning_rate) override {
    return run_.optimizer.set_learning_rate(learning_rate);
  }
  ServerCounts counts() const noexcept override { return run_.counts; }
  std::span<const DroppedWorker> dropped() const noexcept override { return run_.workers.dropped(); }
  std::uint64_t steps() const noexcept override { return run_.step; }

  Result<std::vector<std::byte>> save() const override {
    if (state_ == State::kFailed) return wrong_state("this parameter server has failed");
    ASSIGN_OR_RETURN(const std::vector<std::byte> pull, run_.pull->save());
    const std::vector<std::byte> optimizer = run_.optimizer.save();
    StateWriter writer(head());
    writer.number(std::bit_cast<std::uint64_t>(run_.optimizer.settings().learning_rate));
    writer.number(pull.size());
    writer.number(optimizer.size());
    for (const auto& part : parts_) {
      writer.number(part->number());
      writer.number(part->view().size());
      writer.floats(part->view());
      writer.floats(part->master());
    }
    writer.bytes(pull);
    writer.bytes(optimizer);
    return writer.finish();
  }

  Status load(Bytes state) override {
    if (state_ != State::kNew) return wrong_state("load() comes before the first step()");
    ASSIGN_OR_RETURN(StateReader reader, StateReader::open(state, head()));
    std::uint64_t numbers[3] = {};  // the learning rate, and the bytes of the pull channel and the optimizer
    for (std::uint64_t& number : numbers) {
      ASSIGN_OR_RETURN(number, reader.number());
    }
    std::vector<SavedPart> saved;
    for (const auto& part : parts_) {
      ASSIGN_OR_RETURN(saved.emplace_back(), read_part(reader, *part));
    }
    ASSIGN_OR_RETURN(const Bytes pull, reader.bytes(numbers[1]));
    ASSIGN_OR_RETURN(const Bytes moments, reader.bytes(numbers[2]));
    RETURN_IF_ERROR(reader.end());
    Optimizer optimizer = run_.optimizer;
    RETURN_IF_ERROR(optimizer.load(moments));
    RETURN_IF_ERROR(optimizer.set_learning_rate(std::bit_cast<double>(numbers[0])));
    RETURN_IF_ERROR(run_.pull->load(pull));
    run_.optimizer = std::move(optimizer);
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      parts_[i]->load(std::move(saved[i].view), std::move(saved[i].master));
    }
    run_.step = reader.step();
    return {};
  }

 private:
  enum class State : std::uint8_t { kNew, kOpen, kFailed, kClosed };

  std::vector<Handle> posted() const {
    std::vector<Handle> handles;
    for (const auto& part : parts_) part->add_posted(handles);
    return handles;
  }

  StateHead head() const {
    std::vector<Named> parts;
    parts.reserve(parts_.size());
    for (const auto& part : parts_) parts.push_back(part->named(nullptr));
    return {StateOf::kServer, parts_.size(), state_hash(*run_.push, *run_.pull, parts), run_.step};
  }

  Result<bool> make_step(Deadline deadline) {
    if (state_ == State::kNew) {
      for (const auto& part : parts_) {
        RETURN_IF_ERROR(part->open());
      }
      state_ = State::kOpen;
    }
    if (parts_.empty()) {  // more servers than parts
      state_ = State::kClosed;
      return false;
    }
    for (std::size_t left = parts_.size(); left > 0;) {
      bool has_moved = false;
      RETURN_IF_ERROR(send());
      for (const auto& part : parts_) {
        if (part->has_changed()) continue;
        ASSIGN_OR_RETURN(const bool is_ready, part->collect());
        if (!is_ready && !part->may_have_enough()) {
          if (left == parts_.size()) return close(deadline);
          return run_.workers.ended_amid_step();
        }
        if (!is_ready) continue;
        has_moved = true;
        ASSIGN_OR_RETURN(const bool is_averaged, part->average());
        if (!is_averaged) continue;
        RETURN_IF_ERROR(part->change());
        --left;
      }
      if (left == 0 || has_moved) continue;
      RETURN_IF_ERROR(wait_for_pushes(deadline));
    }
    commit();
    RETURN_IF_ERROR(wait_for_laggards(deadline));
    return true;
  }

  // What comes now of a step that none will make is late. Every worker gets the changes that it lacks, and
  // then the end.
  Result<bool> close(Deadline deadline) {
    assert(!run_.is_closing);
    run_.is_closing = true;
    for (const auto& part : parts_) part->discard_pushes();
    for (;;) {
      RETURN_IF_ERROR(send());
      std::vector<Handle> awaited;
      for (const auto& part : parts_) {
        RETURN_IF_ERROR(part->collect());
        part->add_receives(awaited);
        part->add_blocking_sends(awaited);
      }
      if (awaited.empty()) break;
      RETURN_IF_ERROR(run_.transport.wait_any(awaited, deadline));
    }
    state_ = State::kClosed;
    return false;
  }

  void commit() {
    assert(state_ == State::kOpen);
    run_.pull->commit();
    for (const auto& part : parts_) part->commit();
    ++run_.step;
    ++run_.counts.steps;
  }

  Status send() {
    for (const auto& part : parts_) {
      RETURN_IF_ERROR(part->send());
    }
    return {};
  }

  Status wait_for_pushes(Deadline deadline) {
    std::vector<Handle> awaited;
    for (const auto& part : parts_) {
      if (!part->has_changed()) part->add_receives(awaited);
      part->add_blocking_sends(awaited);
    }
    return run_.transport.wait_any(awaited, deadline);
  }

  // Until every worker has taken all but the last max_lag - 1 changes.
  Status wait_for_laggards(Deadline deadline) {
    for (;;) {
      RETURN_IF_ERROR(send());
      std::vector<Handle> awaited;
      for (const auto& part : parts_) part->add_laggards(run_.options.max_lag, awaited);
      if (awaited.empty()) return {};
      RETURN_IF_ERROR(run_.transport.wait_any(awaited, deadline));
    }
  }

  ServerRun run_;
  std::vector<ServedPart> served_;
  std::vector<std::unique_ptr<PartServer>> parts_;
  State state_ = State::kNew;
};

Result<std::unique_ptr<ParameterServer>> make_server(std::span<const Named> model, std::string_view optimizer,
                                                     const ServerOptions& options, Transport& transport) {
  ASSIGN_OR_RETURN(const ServerOptions fits, fitted_to(options, transport.world_size()));
  ASSIGN_OR_RETURN(ServedModel served, ServedModel::make(model, options, transport));
  if (transport.rank() >= options.servers) {
    return invalid("rank " + std::to_string(transport.rank()) + " is a worker; it takes make_worker");
  }
  ASSIGN_OR_RETURN(Optimizer made, make_optimizer(optimizer));
  if (!fits.rules_of.empty() && parse_optimizer(fits.rules_of)->kind != made.settings().kind) {
    return invalid("rules_of='" + fits.rules_of + "' is another optimizer than '" + made.spec() +
                   "', which steps; give the same");
  }
  ASSIGN_OR_RETURN(ServedRules rules, ServedRules::make(fits));
  auto server =
      std::make_unique<Server>(std::move(served), std::move(made), fits, std::move(rules), transport);
  RETURN_IF_ERROR(server->prepare(model));
  set_optional_workers(options, transport);
  return server;
}

}  // namespace deltawire
