// Each part goes on by itself as its pushes come: average, step the optimizer, encode the change once, send
// it to every worker.
#include "deltawire/server.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/optimizer.h"
#include "deltawire/optimizer_rules.h"
#include "deltawire/spec.h"
#include "server/part_server.h"
#include "server/saved_state.h"
#include "server/served_model.h"

namespace deltawire {

class Server final : public ParameterServer {
 public:
  Server(ServedModel model, Optimizer optimizer, const ServerOptions& options, Transport& transport)
      : run_{.model = std::move(model),
             .optimizer = std::move(optimizer),
             .options = options,
             .transport = transport,
             .workers = WorkerGroup(transport.world_size() - options.servers, options)} {}
  ~Server() override {
    if (state_ != State::kClosed)
      abandon(run_.transport, posted(), "a parameter server ended before its workers");
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Status prepare(std::span<const Named> model);

  Result<bool> step(Deadline deadline) override;
  std::span<const ServedPart> parts() const noexcept override { return served_; }
  std::span<const float> view(std::size_t part) const override { return parts_[part]->view(); }
  std::span<const float> master(std::size_t part) const override { return parts_[part]->master(); }
  Status set_learning_rate(double learning_rate) override {
    return run_.optimizer.set_learning_rate(learning_rate);
  }
  ServerCounts counts() const noexcept override { return run_.counts; }
  std::span<const DroppedWorker> dropped() const noexcept override { return run_.workers.dropped(); }
  std::uint64_t steps() const noexcept override { return run_.step; }
  Result<std::vector<std::byte>> save() const override;
  Status load(Bytes state) override;

 private:
  enum class State : std::uint8_t { kNew, kOpen, kFailed, kClosed };

  std::vector<Handle> posted() const;
  StateHead head() const;

  Status open();
  Result<bool> make_step(Deadline deadline);
  Result<bool> close(Deadline deadline);
  void commit();
  Status send();
  Status wait_for_pushes(Deadline deadline);
  Status wait_for_laggards(Deadline deadline);

  ServerRun run_;
  std::vector<ServedPart> served_;
  std::vector<std::unique_ptr<PartServer>> parts_;
  State state_ = State::kNew;
};

Status Server::prepare(std::span<const Named> model) {
  const ServerOptions& options = run_.options;
  auto push = make_channel(options.push, {.policy = options.policy});
  if (!push) return forward_error(push);
  auto pull = make_channel(options.pull, {.policy = options.policy,
                                          .revert = Revert::kFold,  // as in WorkerRun::make_push_channel
                                          .means = true,
                                          .seed = options.seed});
  if (!pull) return forward_error(pull);
  auto whole = make_model_channel();
  if (!whole) return forward_error(whole);
  run_.push = std::move(*push);
  run_.pull = std::move(*pull);
  run_.whole = std::move(*whole);
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

std::vector<Handle> Server::posted() const {
  std::vector<Handle> handles;
  for (const auto& part : parts_) part->add_posted(handles);
  return handles;
}

Result<bool> Server::step(Deadline deadline) {
  if (state_ == State::kFailed || state_ == State::kClosed) {
    return fail(ErrorCode::kState, "this parameter server has ended; make another one");
  }
  Result<bool> made = make_step(deadline);
  if (!made) {
    state_ = State::kFailed;
    run_.pull->revert();
    run_.transport.abort(made.error());
  }
  return made;
}

Status Server::open() {
  for (const auto& part : parts_) {
    if (Status opened = part->open(); !opened) return opened;
  }
  return {};
}

Result<bool> Server::make_step(Deadline deadline) {
  if (state_ == State::kNew) {
    if (Status opened = open(); !opened) return forward_error(opened);
    state_ = State::kOpen;
  }
  if (parts_.empty()) {  // more servers than parts
    state_ = State::kClosed;
    return false;
  }
  for (std::size_t left = parts_.size(); left > 0;) {
    bool has_moved = false;
    if (Status sent = send(); !sent) return forward_error(sent);
    for (const auto& part : parts_) {
      if (part->has_changed()) continue;
      const Result<bool> is_ready = part->collect();
      if (!is_ready) return forward_error(is_ready);
      if (!*is_ready && !part->may_have_enough()) {
        if (left == parts_.size()) return close(deadline);
        return run_.workers.ended_amid_step();
      }
      if (!*is_ready) continue;
      has_moved = true;
      const Result<bool> is_averaged = part->average();
      if (!is_averaged) return forward_error(is_averaged);
      if (!*is_averaged) continue;
      if (Status changed = part->change(); !changed) return forward_error(changed);
      --left;
    }
    if (left == 0 || has_moved) continue;
    if (Status came = wait_for_pushes(deadline); !came) return forward_error(came);
  }
  commit();
  if (Status gone = wait_for_laggards(deadline); !gone) return forward_error(gone);
  return true;
}

void Server::commit() {
  assert(state_ == State::kOpen);
  run_.pull->commit();
  for (const auto& part : parts_) part->commit();
  ++run_.step;
  ++run_.counts.steps;
}

Status Server::send() {
  for (const auto& part : parts_) {
    if (Status sent = part->send(); !sent) return sent;
  }
  return {};
}

Status Server::wait_for_pushes(Deadline deadline) {
  std::vector<Handle> awaited;
  for (const auto& part : parts_) {
    if (!part->has_changed()) part->add_receives(awaited);
    part->add_blocking_sends(awaited);
  }
  return run_.transport.wait_any(awaited, deadline);
}

// Until every worker has taken all but the last max_lag - 1 changes.
Status Server::wait_for_laggards(Deadline deadline) {
  for (;;) {
    if (Status sent = send(); !sent) return sent;
    std::vector<Handle> awaited;
    for (const auto& part : parts_) part->add_laggards(run_.options.max_lag, awaited);
    if (awaited.empty()) return {};
    if (Status went = run_.transport.wait_any(awaited, deadline); !went) return went;
  }
}

// What comes now of a step that none will make is late. Every worker gets the changes that it lacks, and then
// the end.
Result<bool> Server::close(Deadline deadline) {
  assert(!run_.is_closing);
  run_.is_closing = true;
  for (const auto& part : parts_) part->discard_pushes();
  for (;;) {
    if (Status sent = send(); !sent) return forward_error(sent);
    std::vector<Handle> awaited;
    for (const auto& part : parts_) {
      const Result<bool> enough = part->collect();
      if (!enough) return forward_error(enough);
      part->add_receives(awaited);
      part->add_blocking_sends(awaited);
    }
    if (awaited.empty()) break;
    if (Status moved = run_.transport.wait_any(awaited, deadline); !moved) return forward_error(moved);
  }
  state_ = State::kClosed;
  return false;
}

StateHead Server::head() const {
  std::vector<Named> parts;
  parts.reserve(parts_.size());
  for (const auto& part : parts_) parts.push_back(part->named(nullptr));
  return {StateOf::kServer, parts_.size(), state_hash(*run_.push, *run_.pull, parts), run_.step};
}

Result<std::vector<std::byte>> Server::save() const {
  if (state_ == State::kFailed) return fail(ErrorCode::kState, "this parameter server has failed");
  const Result<std::vector<std::byte>> pull = run_.pull->save();
  if (!pull) return forward_error(pull);
  const std::vector<std::byte> optimizer = run_.optimizer.save();
  StateWriter writer(head());
  writer.number(std::bit_cast<std::uint64_t>(run_.optimizer.settings().learning_rate));
  writer.number(pull->size());
  writer.number(optimizer.size());
  for (const auto& part : parts_) {
    writer.number(part->number());
    writer.number(part->view().size());
    writer.floats(part->view());
    writer.floats(part->master());
  }
  writer.bytes(*pull);
  writer.bytes(optimizer);
  return writer.finish();
}

namespace {

struct SavedPart {
  std::vector<float> view;
  std::vector<float> master;
};

Result<SavedPart> read_part(StateReader& reader, const PartServer& part) {
  const Result<std::uint64_t> number = reader.number();
  if (!number) return forward_error(number);
  const Result<std::uint64_t> count = reader.number();
  if (!count) return forward_error(count);
  if (*number != part.number() || *count != part.view().size()) {
    return fail(ErrorCode::kCorrupt, "a server's state: a part of another place or count");
  }
  Result<std::vector<float>> view = reader.floats(*count);
  if (!view) return forward_error(view);
  Result<std::vector<float>> master = reader.floats(*count);
  if (!master) return forward_error(master);
  return SavedPart{std::move(*view), std::move(*master)};
}

}  // namespace

Status Server::load(Bytes state) {
  if (state_ != State::kNew) return fail(ErrorCode::kState, "load() comes before the first step()");
  Result<StateReader> reader = StateReader::open(state, head());
  if (!reader) return forward_error(reader);
  std::uint64_t numbers[3] = {};  // the learning rate, and the bytes of the pull channel and the optimizer
  for (std::uint64_t& number : numbers) {
    const Result<std::uint64_t> read = reader->number();
    if (!read) return forward_error(read);
    number = *read;
  }
  std::vector<SavedPart> saved;
  for (const auto& part : parts_) {
    Result<SavedPart> read = read_part(*reader, *part);
    if (!read) return forward_error(read);
    saved.push_back(std::move(*read));
  }
  const Result<Bytes> pull = reader->bytes(numbers[1]);
  if (!pull) return forward_error(pull);
  const Result<Bytes> moments = reader->bytes(numbers[2]);
  if (!moments) return forward_error(moments);
  if (Status whole = reader->end(); !whole) return whole;
  Optimizer optimizer = run_.optimizer;
  if (Status had = optimizer.load(*moments); !had) return had;
  if (Status set = optimizer.set_learning_rate(std::bit_cast<double>(numbers[0])); !set) return set;
  if (Status had = run_.pull->load(*pull); !had) return had;
  run_.optimizer = std::move(optimizer);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    parts_[i]->load(std::move(saved[i].view), std::move(saved[i].master));
  }
  run_.step = reader->step();
  return {};
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

Result<std::vector<std::string>> server_warnings(std::string_view optimizer, const ServerOptions& options) {
  const auto settings = parse_optimizer(optimizer);
  if (!settings) return forward_error(settings);
  const auto push = Spec::parse(options.push, {.pattern = "direct"});
  if (!push) return forward_error(push);
  return optimizer_warnings(*push, OptimizerTraits::of(*settings), OptimizerPlace::kServer);
}

}  // namespace deltawire
