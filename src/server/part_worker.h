// One part of a worker: its push, and the pulls that come for it. It has a channel of its own, a compression
// context as in 3LC, section 3: so each part goes through the steps at its own pace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "deltawire/server.h"
#include "server/saved_state.h"
#include "server/served_model.h"
#include "server/served_rules.h"

namespace deltawire {

inline constexpr std::uint64_t kToTheEnd = std::numeric_limits<std::uint64_t>::max();

// What the parts of one worker rank share.
struct WorkerRun {
  ServedModel model;
  ServerOptions options;
  Transport& transport;
  ServedRules rules;
  std::unique_ptr<Channel> pull = {};   // decodes
  std::unique_ptr<Channel> whole = {};  // likewise, parts as they are
  std::vector<float> input = {};        // of the part that pushes
  ServerCounts counts = {};
  std::uint64_t step = 0;
  bool has_ended = false;  // a server has closed

  bool may_be_late() const noexcept { return options.backup > 0; }
  // For the pushes of one part. After a revert the worker has ended, so that no second buffer is needed.
  Result<std::unique_ptr<Channel>> make_push_channel() const {
    return make_channel(options.push,
                        {.policy = options.policy, .revert = Revert::kFold, .seed = options.seed});
  }
};

// `run` must outlive it, and stay where it is.
class PartWorker {
 public:
  // What load() takes: a state that was read and checked whole.
  struct Saved {
    std::unique_ptr<Channel> channel;
    std::vector<float> held;
  };

  // `number` is the part's place in the model; `values` are its parameters, which pulls change.
  PartWorker(WorkerRun& run, std::size_t number, float* values, std::unique_ptr<Channel> channel)
      : run_(run),
        number_(number),
        values_(values),
        channel_(std::move(channel)),
        lines_(run.model, number, run.rules, run.options.staleness == 0) {}

  const ServedPart& part() const noexcept { return run_.model.parts()[number_]; }
  Named named(float* values) const noexcept { return run_.model.part_of(part(), values); }
  const Channel& channel() const noexcept { return *channel_; }

  // Steps that its parameters have; steps that were pushed, kept or skipped.
  std::uint64_t steps() const noexcept { return steps_; }
  std::uint64_t pushes() const noexcept { return pushes_; }
  bool is_closed() const noexcept { return is_closed_; }  // by its server
  bool is_under_way() const noexcept { return !unanswered_.empty(); }
  bool has_come() const noexcept { return !is_closed_ && run_.transport.done(receive_); }

  // Posts the receive of the next pull.
  void post();
  // Takes the parameters, which the server sends first, and posts the next receive. All parts begin with the
  // step of the first one, which may be this: kMismatch.
  Status fetch(const PartWorker& first, Deadline deadline);

  Status push(std::span<const float> gradient);
  // Applies one pull, or the end.
  Status apply(Deadline deadline);
  // Applies pulls in order until the part has `steps`, or its server has closed.
  Status advance(std::uint64_t steps, Deadline deadline);
  // The same for steps that other parts have already. Of those that it has not pushed it tells its server
  // that no push comes: the server may have lost whoever pushed them.
  Status follow(std::uint64_t steps, Deadline deadline);
  // Tells the server that no push follows.
  Handle close() { return run_.transport.post_send(part().server, run_.model.tag(number_, Way::kPush), {}); }
  void revert() { channel_->revert(); }

  // Adds what waits for a later push.
  void add_residual(std::span<float> sum) const;
  void add_posted(std::vector<Handle>& posted) const;

  Status save(StateWriter& writer) const;
  Result<Saved> read(StateReader& reader) const;
  void load(Saved saved);

 private:
  // A push that no pull has answered yet. Without staleness its channel's transaction is open and has the
  // bytes; with it the channel goes on with the next step, and the bytes are here.
  struct Unanswered {
    std::uint64_t step = 0;
    Handle send = Handle::kNone;
    std::vector<std::byte> beside;  // before the pieces
    std::vector<std::byte> copy;
    std::vector<Bytes> pieces;
    bool skips = false;  // the bytes are a SkipMessage, not a push
  };

  void send(Unanswered& push);
  Status replace(Bytes body, std::uint64_t version);
  Status settle(std::uint64_t step, PushVerdict verdict, Deadline deadline);
  Status end(Deadline deadline);
  Status hold(const Unanswered& push);
  void skip();

  WorkerRun& run_;
  std::size_t number_;
  float* values_;
  std::unique_ptr<Channel> channel_;
  PartLines lines_;
  // What was pushed too late, as its servers would have decoded it, and what PartLines::change_scales adds.
  // Leaves with the next push; empty: nothing.
  std::vector<float> held_;
  std::vector<std::byte> memory_;
  Handle receive_ = Handle::kNone;
  std::deque<Unanswered> unanswered_;  // the oldest first
  std::uint64_t pushes_ = 0;
  std::uint64_t steps_ = 0;
  bool is_closed_ = false;
};

}  // namespace deltawire
