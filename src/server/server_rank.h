// One server rank: what it keeps of its parts and of each worker. server.cc makes steps, server_pushes.cc
// reads gradients, server_pulls.cc sends changes, server_drops.cc goes on without a worker.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "deltawire/optimizer.h"
#include "deltawire/server.h"
#include "server/abandon.h"
#include "server/served_model.h"

namespace deltawire {

// Where one worker's pushes of one part come in.
struct Inbox {
  std::vector<std::byte> memory;
  Handle receive = Handle::kNone;
  std::uint64_t bytes = 0;
  bool is_here = false;  // a push of this step, not yet added
  bool is_closed = false;
};

using Body = std::shared_ptr<const std::vector<std::byte>>;

// What one worker is sent of one part: one message at a time. What it has not been sent waits as a number.
struct Outbox {
  Handle handle = Handle::kNone;
  std::vector<std::byte> head;  // of the message that is on its way
  Body body;
  std::uint64_t next = 0;        // the first version that has not been sent
  std::uint64_t taken = 0;       // versions before this one have left
  std::deque<Verdict> verdicts;  // on the worker's pushes, from step `next` on
  bool is_ended = false;         // nothing follows
};

struct OwnPart {
  std::size_t number = 0;  // in the model's list
  std::string key;         // the optimizer's
  std::vector<float> view = {};
  std::vector<float> master = {};
  std::vector<Inbox> inboxes = {};    // by worker
  std::vector<Outbox> outboxes = {};  // likewise
  // Changes that some worker has not been sent, each encoded once. Change k leads from version k to k + 1.
  std::deque<Body> changes = {};
  std::uint64_t first_change = 0;
  Body whole = {};  // the view of whole_version, where a worker has needed it
  std::uint64_t whole_version = 0;
  bool is_made = false;  // in this step

  // Steps that the view has.
  std::uint64_t versions() const noexcept { return first_change + changes.size(); }
};

class Server final : public ParameterServer {
 public:
  Server(ServedModel model, Optimizer optimizer, const ServerOptions& options, Transport& transport)
      : model_(std::move(model)),
        optimizer_(std::move(optimizer)),
        options_(options),
        transport_(transport) {}
  ~Server() override {
    if (state_ != State::kClosed)
      abandon(transport_, posted(), "a parameter server ended before its workers");
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  Status prepare(std::span<const Named> model);

  Result<bool> step(Deadline deadline) override;
  std::span<const ServedPart> parts() const noexcept override { return served_; }
  std::span<const float> view(std::size_t part) const override { return own_[part].view; }
  std::span<const float> master(std::size_t part) const override { return own_[part].master; }
  Status set_learning_rate(double learning_rate) override {
    return optimizer_.set_learning_rate(learning_rate);
  }
  ServerCounts counts() const noexcept override { return counts_; }
  std::span<const DroppedWorker> dropped() const noexcept override { return dropped_; }
  std::uint64_t steps() const noexcept override { return step_; }
  Result<std::vector<std::byte>> save() const override;
  Status load(Bytes state) override;

 private:
  enum class State : std::uint8_t { kNew, kOpen, kFailed, kClosed };

  const ServedPart& part(const OwnPart& own) const noexcept { return model_.parts()[own.number]; }
  int rank_of(std::size_t worker) const noexcept { return model_.servers() + static_cast<int>(worker); }
  // Workers that were not dropped; how many of them a step waits for.
  std::size_t workers_left() const noexcept { return counted_.size() - dropped_.size(); }
  std::size_t needed() const noexcept {
    return std::min(static_cast<std::size_t>(model_.workers() - options_.backup), workers_left());
  }
  std::vector<Handle> posted() const;
  std::uint64_t state_hash() const;

  Result<bool> make_step(Deadline deadline);
  Result<bool> close(Deadline deadline);
  void commit();

  Status open();
  Status change(OwnPart& own);
  Status encode_whole(OwnPart& own);
  Status send_all();
  Status send_next(OwnPart& own);
  Status send_next(OwnPart& own, std::size_t worker);
  Result<bool> whole_is_smaller(OwnPart& own, const Outbox& outbox);
  void send(OwnPart& own, std::size_t worker, const Body& body);
  Status wait_for_laggards(Deadline deadline, std::uint64_t lag);
  void add_blocking_sends(std::vector<Handle>& awaited) const;

  void post(OwnPart& own, std::size_t worker);
  Result<bool> collect(OwnPart& own);
  Status take(OwnPart& own, std::size_t worker);
  Status refuse(std::size_t worker, const Error& error);
  bool may_come(const OwnPart& own) const noexcept;
  bool has_enough(const OwnPart& own) const noexcept;
  Result<bool> average(OwnPart& own);
  Result<bool> add_up(OwnPart& own);
  Status wait_for_pushes(Deadline deadline);
  void add_receives(const OwnPart& own, std::vector<Handle>& awaited) const;

  Status dropped_or(std::size_t worker, const Error& error);
  void drop(std::size_t worker, const Error& why);
  Status check_workers() const;

  ServedModel model_;
  Optimizer optimizer_;
  ServerOptions options_;
  Transport& transport_;
  std::unique_ptr<Channel> push_;  // decodes
  std::unique_ptr<Channel> pull_;
  std::unique_ptr<Channel> whole_;  // of the view, as it is
  std::vector<ServedPart> served_;
  std::vector<OwnPart> own_;
  std::vector<float> gradient_;  // of the part that is at work, then its change
  std::vector<char> counted_;    // of that part, by worker
  std::vector<char> is_dropped_;
  std::vector<DroppedWorker> dropped_;
  std::uint64_t step_ = 0;
  bool is_closing_ = false;
  State state_ = State::kNew;
  ServerCounts counts_;
};

}  // namespace deltawire
