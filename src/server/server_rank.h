// One server rank: steps, which all its parts make together, and what it saves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "deltawire/optimizer.h"
#include "deltawire/server.h"
#include "server/abandon.h"
#include "server/part_server.h"
#include "server/saved_state.h"

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

}  // namespace deltawire
