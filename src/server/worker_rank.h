// One worker rank. Each part has a channel of its own, a compression context as in 3LC, section 3: so each
// goes its own way through the steps. worker.cc goes from step to
// step, worker_parts.cc moves one part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "deltawire/server.h"
#include "server/abandon.h"
#include "server/served_model.h"

namespace deltawire {

inline constexpr std::uint64_t kToTheEnd = std::numeric_limits<std::uint64_t>::max();

// A push that no pull has answered yet. Without staleness its channel's transaction is open and has the
// bytes; with it the channel goes on with the next step, and the bytes are here.
struct Unanswered {
  std::uint64_t step = 0;
  Handle send = Handle::kNone;
  std::vector<std::byte> copy;
  std::vector<Bytes> pieces;
};

struct WorkerPart {
  std::size_t number = 0;
  ServedPart part;
  std::unique_ptr<Channel> channel;
  // What was pushed too late, as its servers would have decoded it. Leaves with the next push; empty:
  // nothing.
  std::vector<float> held = {};
  std::vector<std::byte> memory = {};
  Handle receive = Handle::kNone;
  std::deque<Unanswered> unanswered = {};  // the oldest first
  std::uint64_t pushes = 0;                // steps that were pushed, kept or skipped
  std::uint64_t steps = 0;                 // that its parameters have
  bool is_closed = false;                  // by its server
};

class Worker final : public ParameterWorker {
 public:
  Worker(ServedModel model, const ServerOptions& options, Transport& transport)
      : model_(std::move(model)), options_(options), transport_(transport) {}
  ~Worker() override {
    if (state_ != State::kOpen && state_ != State::kFailed) return;
    std::vector<Handle> posted;
    for (const WorkerPart& part : parts_) {
      posted.push_back(part.receive);
      for (const Unanswered& push : part.unanswered) posted.push_back(push.send);
    }
    abandon(transport_, posted, "a worker ended without closing");
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
  std::uint64_t step() const noexcept override { return step_; }
  std::uint64_t version() const noexcept override { return version_; }
  bool has_ended() const noexcept override { return has_ended_; }
  Status add_residual(std::size_t tensor, std::span<float> sum) const override;
  ServerCounts counts() const noexcept override { return counts_; }
  Result<std::vector<std::byte>> save() const override;
  Status load(Bytes state) override;

 private:
  enum class State : std::uint8_t { kNew, kOpen, kFailed, kClosed };

  Status check_open(std::size_t tensor) const;
  std::uint64_t state_hash() const;
  // A push of it has not been answered.
  static bool is_under_way(const WorkerPart& part) noexcept { return !part.unanswered.empty(); }
  Result<std::uint64_t> step_of_model(const WorkerPart& part, Bytes frames) const;
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
  // For the pushes of one part. After a revert the worker has ended, so that no second buffer is needed.
  Result<std::unique_ptr<Channel>> push_channel() const {
    return make_channel(options_.push,
                        {.policy = options_.policy, .revert = Revert::kFold, .seed = options_.seed});
  }
  Status fetch(Deadline deadline);
  void post(WorkerPart& part);
  Status push_part(WorkerPart& part, std::span<const float> gradient);
  Status replace(WorkerPart& part, Bytes body, std::uint64_t version);
  Status hold(WorkerPart& part, const Unanswered& push);
  Status advance(WorkerPart& part, std::uint64_t steps, Deadline deadline);
  Status apply(WorkerPart& part, Deadline deadline);
  Status settle(WorkerPart& part, std::uint64_t step, Verdict verdict, Deadline deadline);
  bool may_be_late() const noexcept { return options_.backup > 0; }
  bool all_have_come() const;
  Status pull_all(Deadline deadline);
  Result<std::uint64_t> level_parts(Deadline deadline);
  Status leave(Deadline deadline);

  ServedModel model_;
  ServerOptions options_;
  Transport& transport_;
  std::unique_ptr<Channel> pull_;   // decodes
  std::unique_ptr<Channel> whole_;  // likewise
  std::vector<float*> values_;      // by tensor
  std::vector<std::size_t> first_part_;
  std::vector<WorkerPart> parts_;
  std::vector<float> input_;
  std::uint64_t step_ = 0;
  std::uint64_t version_ = 0;
  bool has_ended_ = false;
  State state_ = State::kNew;
  ServerCounts counts_;
};

}  // namespace deltawire
