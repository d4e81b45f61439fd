// One worker rank: every tensor is pushed, then pulled, step after step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "deltawire/server.h"
#include "server/abandon.h"
#include "server/part_worker.h"

namespace deltawire {

class Worker final : public ParameterWorker {
 public:
  Worker(ServedModel model, const ServerOptions& options, Transport& transport)
      : run_{.model = std::move(model), .options = options, .transport = transport} {}
  ~Worker() override {
    if (state_ != State::kOpen && state_ != State::kFailed) return;
    std::vector<Handle> posted = closes_;
    for (const auto& part : parts_) part->add_posted(posted);
    abandon(run_.transport, posted, "a worker ended without closing");
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  Status prepare(std::span<const Named> model);

  Status open(Deadline deadline) override;
  Status push(std::size_t tensor, std::span<const float> gradient) override;
  Status pull(std::size_t tensor, Deadline deadline) override;
  Status pull(Deadline deadline) override;
  Status catch_up(Deadline deadline) override;
  Status close(Deadline deadline) override;
  std::uint64_t step() const noexcept override { return run_.step; }
  std::uint64_t version() const noexcept override { return version_; }
  bool has_ended() const noexcept override { return run_.has_ended; }
  Status add_residual(std::size_t tensor, std::span<float> sum) const override;
  ServerCounts counts() const noexcept override { return run_.counts; }
  Result<std::vector<std::byte>> save() const override;
  Status load(Bytes state) override;

 private:
  enum class State : std::uint8_t { kNew, kOpen, kFailed, kClosed };
  using Parts = std::vector<std::unique_ptr<PartWorker>>;

  Status check_open(std::size_t tensor) const;
  Status check_any_open() const;
  StateHead head() const;
  Status settled(Status status);
  std::span<const Parts::value_type> parts_of(std::size_t tensor) const noexcept {
    return std::span(parts_).subspan(first_part_[tensor], first_part_[tensor + 1] - first_part_[tensor]);
  }
  Status fetch(Deadline deadline);
  bool all_have_come() const;
  Status pull_all(Deadline deadline);
  Result<std::uint64_t> level_parts(Deadline deadline);
  void say_close();
  Status leave(Deadline deadline);
  Status check_whole() const;

  WorkerRun run_;
  std::vector<std::size_t> first_part_;  // by tensor
  Parts parts_;
  std::vector<Handle> closes_;  // sends that say so
  std::uint64_t version_ = 0;
  State state_ = State::kNew;
};

}  // namespace deltawire
