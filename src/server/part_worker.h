// One part of a worker: its push, and the pulls that come for it. It has a channel of its own, a compression
// context as in 3LC, section 3: so each part goes through the steps at its own pace.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
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

// What came from a part's server is not what it should be.
inline tl::unexpected<Error> blame(int server, const std::string& what, const Error& error) {
  tl::unexpected<Error> told = fail_in(what + " of rank " + std::to_string(server) + ": ", error);
  told.value().suspect = server;
  return told;
}

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
  void post() {
    assert(receive_ == Handle::kNone && !is_closed_);
    const Named whole = named(values_);
    const std::uint64_t change = pull_head_bytes(1) + run_.pull->message_bound(std::span(&whole, 1), steps_);
    const std::uint64_t model = pull_head_bytes(std::min<std::uint64_t>(kVerdictsMax, run_.options.max_lag)) +
                                run_.whole->message_bound(std::span(&whole, 1), steps_);
    memory_.resize(std::max<std::size_t>(memory_.size(), std::max(change, model) + lines_.bound()));
    receive_ = run_.transport.post_recv(part().server, run_.model.tag(number_, Way::kPull), memory_);
  }

  // Takes the parameters, which the server sends first, and posts the next receive. All parts begin with the
  // step of the first one, which may be this: kMismatch.
  Status fetch(const PartWorker& first, Deadline deadline) {
    ASSIGN_OR_RETURN(const auto bytes, run_.transport.wait(std::exchange(receive_, Handle::kNone), deadline));
    run_.counts.pull_bytes += bytes;
    const Result<PullHead> pull = read_pull(Bytes(memory_).first(bytes));
    if (!pull) return blame(part().server, "a pull", pull.error());
    const Result<FrameReader> frame = FrameReader::open(pull->body);
    if (!frame) return blame(part().server, "the model", frame.error());
    const std::uint64_t step = frame->header().message.step;
    if (&first != this && step != first.steps()) {
      return mismatch("rank " + std::to_string(part().server) + " serves the model after " +
                          std::to_string(step) + " steps, rank " + std::to_string(first.part().server) +
                          " after " + std::to_string(first.steps()) +
                          "; load states of the same step on all servers",
                      part().server);
    }
    RETURN_IF_ERROR(take(Way::kModel, pull->body, step));
    lines_.change_scales({}, held_);
    steps_ = pushes_ = step;
    post();
    return {};
  }

  Status push(std::span<const float> gradient) {
    assert(gradient.size() == part().count && gradient.size() <= run_.input.size());
    assert(held_.empty() || held_.size() == part().count);
    assert(pushes_ <= run_.step);
    const std::span input(run_.input.data(), gradient.size());
    std::vector<std::byte> beside;
    if (lines_.has_squares(run_.step, *channel_)) {
      ASSIGN_OR_RETURN(beside, lines_.encode_squares(gradient, run_.step, run_.transport.rank()));
    }
    std::ranges::copy(gradient, input.begin());
    for (std::size_t i = 0; i < held_.size(); ++i) input[i] += held_[i];
    held_.clear();
    pushes_ = run_.step + 1;
    // The step's change is here already, made without this gradient.
    const bool is_late = run_.may_be_late() && steps_ == run_.step && run_.transport.done(receive_);
    if (is_closed_ || is_late || steps_ > run_.step) {
      held_.assign(input.begin(), input.end());
      ++run_.counts.late_pushes;
      return {};
    }
    lines_.divide_rows(input);
    const Named whole = named(input.data());
    const MessageId id = run_.model.message(number_, Way::kPush, run_.step, run_.transport.rank());
    ASSIGN_OR_RETURN(const auto pieces, channel_->encode(std::span(&whole, 1), id));
    Unanswered& push = unanswered_.emplace_back();
    push.step = run_.step;
    push.beside = std::move(beside);
    if (run_.options.staleness > 0) {
      push.copy = joined(pieces);
      push.pieces.assign(1, push.copy);
      channel_->commit();
    } else {
      push.pieces.assign(pieces.begin(), pieces.end());
    }
    for (const Bytes piece : push.pieces) run_.counts.push_bytes += piece.size();
    run_.counts.push_bytes += push.beside.size();
    send(push);
    return {};
  }

  // Applies one pull, or the end.
  Status apply(Deadline deadline) {
    assert(!is_closed_);
    ASSIGN_OR_RETURN(const auto bytes, run_.transport.wait(std::exchange(receive_, Handle::kNone), deadline));
    run_.counts.pull_bytes += bytes;
    if (bytes == 0) return end(deadline);
    const Result<PullHead> pull = read_pull(Bytes(memory_).first(bytes));
    if (!pull) return blame(part().server, "a pull", pull.error());
    if (pull->kind == PullKind::kWhole) {
      RETURN_IF_ERROR(take(Way::kModel, pull->body, steps_ + pull->steps()));
      ++run_.counts.whole_models;
    } else {
      RETURN_IF_ERROR(take(Way::kPull, pull->body, steps_ + 1));
    }
    for (std::uint64_t at = 0; at < pull->steps(); ++at) {
      RETURN_IF_ERROR(settle(steps_ + at, pull->verdict(at), deadline));
    }
    lines_.change_scales(channel_->residual(run_.model.name(part()), part().first), held_);
    steps_ += pull->steps();
    post();
    return {};
  }

  // Applies pulls in order until the part has `steps`, or its server has closed.
  Status advance(std::uint64_t steps, Deadline deadline) {
    while (!is_closed_ && steps_ < steps) {
      RETURN_IF_ERROR(apply(deadline));
    }
    return {};
  }

  // The same for steps that other parts have already. Of those that it has not pushed it tells its server
  // that no push comes: the server may have lost whoever pushed them.
  Status follow(std::uint64_t steps, Deadline deadline) {
    while (!is_closed_ && steps_ < steps) {
      if (pushes_ <= steps_) skip();
      RETURN_IF_ERROR(apply(deadline));
    }
    return {};
  }

  // Tells the server that no push follows.
  Handle close() { return run_.transport.post_send(part().server, run_.model.tag(number_, Way::kPush), {}); }
  void revert() { channel_->revert(); }

  // Adds what waits for a later push.
  void add_residual(std::span<float> sum) const {
    const auto add = [&](std::span<const float> waits) {
      assert(waits.size() <= sum.size());
      for (std::size_t i = 0; i < waits.size(); ++i) sum[i] += waits[i];
    };
    const std::span<const float> residual = channel_->residual(run_.model.name(part()), part().first);
    std::vector<float> scaled(residual.begin(), residual.end());
    if (!scaled.empty()) lines_.multiply_rows(scaled);
    add(scaled);
    add(held_);
  }

  void add_posted(std::vector<Handle>& posted) const {
    posted.push_back(receive_);
    for (const Unanswered& push : unanswered_) posted.push_back(push.send);
  }

  Status save(StateWriter& writer) const {
    if (is_under_way()) return wrong_state("save() comes after pull() or catch_up()");
    ASSIGN_OR_RETURN(const std::vector<std::byte> channel, channel_->save());
    writer.number(channel.size());
    writer.number(held_.size());
    writer.floats(held_);
    writer.bytes(channel);
    return {};
  }

  Result<Saved> read(StateReader& reader) const {
    ASSIGN_OR_RETURN(const std::uint64_t bytes, reader.number());
    ASSIGN_OR_RETURN(const std::uint64_t count, reader.number());
    if (count != 0 && count != part().count) {
      return corrupt("a worker's state: a late gradient of another count");
    }
    ASSIGN_OR_RETURN(std::vector<float> held, reader.floats(count));
    ASSIGN_OR_RETURN(const Bytes residual, reader.bytes(bytes));
    ASSIGN_OR_RETURN(auto channel, run_.make_push_channel());
    RETURN_IF_ERROR(channel->load(residual));
    return Saved{std::move(channel), std::move(held)};
  }

  void load(Saved saved) {
    assert(saved.channel != nullptr && (saved.held.empty() || saved.held.size() == part().count));
    channel_ = std::move(saved.channel);
    held_ = std::move(saved.held);
  }

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

  void send(Unanswered& push) {
    std::vector<Bytes> all{Bytes(push.beside)};
    all.insert(all.end(), push.pieces.begin(), push.pieces.end());
    push.send = run_.transport.post_send(part().server, run_.model.tag(number_, Way::kPush), all);
  }

  // A change of the values, by way of kPull, or all of them, by way of kModel, which make `version`: their
  // scales lead `body`.
  Status take(Way way, Bytes body, std::uint64_t version) {
    const bool is_change = way == Way::kPull;
    const MessageId id = run_.model.message(number_, way, is_change ? version - 1 : version, part().server);
    const Named whole = named(values_);
    const auto decode = [&](Bytes message) {
      Channel& channel = is_change ? *run_.pull : *run_.whole;
      return channel.decode(message, std::span(&whole, 1), id,
                            is_change ? Into::kAccumulate : Into::kOverwrite, 1.0F);
    };
    const Status taken = lines_.take_scales(body, version, part().server, *channel_).and_then(decode);
    if (!taken) return blame(part().server, is_change ? "a pull" : "the model", taken.error());
    return {};
  }

  // The push of this step, if there was one: it counted, or what it had waits for the next.
  Status settle(std::uint64_t step, PushVerdict verdict, Deadline deadline) {
    assert(unanswered_.empty() || unanswered_.front().step >= step);
    if (unanswered_.empty() || unanswered_.front().step != step) return {};
    Unanswered& push = unanswered_.front();
    RETURN_IF_ERROR(run_.transport.wait(std::exchange(push.send, Handle::kNone), deadline));
    if (verdict == PushVerdict::kLate && !push.skips) {
      RETURN_IF_ERROR(hold(push));
      ++run_.counts.late_pushes;
    }
    channel_->commit();
    unanswered_.pop_front();
    return {};
  }

  // The server has closed: what it has not answered is late.
  Status end(Deadline deadline) {
    is_closed_ = true;
    run_.has_ended = true;
    while (!unanswered_.empty()) {
      RETURN_IF_ERROR(settle(unanswered_.front().step, PushVerdict::kLate, deadline));
    }
    return {};
  }

  // With what its channel keeps this is what the push was made of.
  Status hold(const Unanswered& push) {
    held_.resize(part().count);
    const Named whole = named(held_.data());
    const MessageId id = run_.model.message(number_, Way::kPush, push.step, run_.transport.rank());
    RETURN_IF_ERROR(channel_->decode(push.pieces, std::span(&whole, 1), id, Into::kAccumulate, 1.0F));
    // Without staleness, which has no scales, the push took along all that was held.
    lines_.multiply_rows(held_);
    return {};
  }

  void skip() {
    assert(!is_closed_ && (unanswered_.empty() || unanswered_.back().step < steps_));
    Unanswered& none = unanswered_.emplace_back();
    none.step = steps_;
    none.skips = true;
    const SkipMessage message = skip_message(steps_);
    none.copy.assign(message.begin(), message.end());
    none.pieces.assign(1, none.copy);
    send(none);
  }

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
