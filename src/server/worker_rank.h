// One worker rank. Each part has a channel of its own, a compression context as in 3LC, section 3: so a push
// that came too late is taken back alone, and its gradient waits in its residual. worker.cc goes from step to
// step, worker_parts.cc moves one part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "deltawire/server.h"
#include "server/posted.h"
#include "server/served_model.h"

namespace deltawire {

inline constexpr std::uint64_t kToTheEnd = std::numeric_limits<std::uint64_t>::max();

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

}  // namespace deltawire
