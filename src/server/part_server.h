// One part on its server: pushes come in, the optimizer steps, and the change goes out to every worker.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/errors.h"
#include "deltawire/optimizer.h"
#include "deltawire/server.h"
#include "server/pull_queue.h"
#include "server/push_collector.h"
#include "server/served_model.h"
#include "server/served_rules.h"
#include "transport/process/machine.h"

namespace deltawire {

// What the parts of one server rank share.
struct ServerRun {
  ServedModel model;
  Optimizer optimizer;
  ServerOptions options;
  Transport& transport;
  WorkerGroup workers;
  ServedRules rules;
  std::unique_ptr<Channel> push = {};  // decodes
  std::unique_ptr<Channel> pull = {};
  std::unique_ptr<Channel> whole = {};  // of views, as they are
  std::vector<float> gradient = {};     // of the part that is at work, then its change
  ServerCounts counts = {};
  std::uint64_t step = 0;
  bool is_closing = false;

  // An operation with a worker, or this server on reading its push, failed with `error`. Success if the
  // worker was lost and the run continues without it; otherwise the error, or kPeerLost where too few are
  // left.
  Status dropped_or(std::size_t worker, const Error& error) {
    const std::optional<Error> loss = transport.departure_of(workers.rank_of(worker));
    if (!loss) return tl::unexpected<Error>(error);
    if (!workers.is_dropped(worker)) workers.drop(worker, step, *loss);
    return is_closing ? Status() : workers.check_left();
  }
};

// No call waits. `run` must outlive it, and stay where it is.
class PartServer {
 public:
  // `number` is the part's place in the model; `values` are its first parameters.
  PartServer(ServerRun& run, std::size_t number, std::vector<float> values)
      : run_(run),
        number_(number),
        key_(run.model.name(part()) + "@" + std::to_string(part().first)),
        lines_(run.model, number, run.rules, run.options.staleness == 0),
        view_(std::move(values)),
        master_(view_),
        pushes_(run.workers),
        pulls_(run.workers, view_.size()) {}

  std::size_t number() const noexcept { return number_; }
  const ServedPart& part() const noexcept { return run_.model.parts()[number_]; }
  Named named(float* values) const noexcept { return run_.model.part_of(part(), values); }
  std::span<const float> view() const noexcept { return view_; }
  std::span<const float> master() const noexcept { return master_; }
  // The whole part, before open().
  void load(std::vector<float> view, std::vector<float> master) {
    assert(view.size() == view_.size() && master.size() == master_.size());
    view_ = std::move(view);
    master_ = std::move(master);
  }

  // Sends the model, and is ready for the first pushes.
  Status open() {
    RETURN_IF_ERROR(scale_rows(run_.step));
    ASSIGN_OR_RETURN(const SharedBytes view, encode_view(run_.step));
    pulls_.begin(run_.step, view);
    for (std::size_t worker = 0; worker < run_.workers.size(); ++worker) {
      send(worker, pulls_.pull(worker));
      post(worker);
    }
    return {};
  }

  // A step: collect() until it says true, average() until it does, change(). When all parts have made it,
  // commit().

  // Reads what has come. True: the part has pushes enough.
  Result<bool> collect() {
    for (std::size_t worker = 0; worker < run_.workers.size(); ++worker) {
      while (pushes_.is_awaited(worker) && run_.transport.done(pushes_.receive(worker))) {
        RETURN_IF_ERROR(take(worker));
      }
    }
    return pushes_.has_enough();
  }

  // Whether enough workers are left that may push.
  bool may_have_enough() const noexcept { return pushes_.may_have_enough(); }
  // The mean of the pushes that are here, in rank order, in ServerRun::gradient. False: one was refused, and
  // more must come.
  Result<bool> average() {
    const auto decode_push = [this](std::size_t worker, Bytes push, Into into, float scale) {
      return decode(worker, push, into, scale);
    };
    while (const std::optional<BadPush> bad = pushes_.average(decode_push)) {
      RETURN_IF_ERROR(refuse(bad->worker, bad->error));
      if (!pushes_.has_enough()) return false;
    }
    if (pushes_.is_empty()) {
      std::ranges::fill(run_.gradient, 0.0F);
      lines_.clear_squares();
    }
    pushes_.end_step();
    for (std::size_t worker = 0; worker < run_.workers.size(); ++worker) {
      if (pushes_.has_counted(worker) && !run_.workers.is_dropped(worker)) post(worker);
    }
    return true;
  }

  // Steps the optimizer with the mean, encodes the change once, and sends it.
  Status change() {
    const std::span gradient(run_.gradient.data(), view_.size());
    assert(master_.size() == view_.size() && gradient.size() <= run_.gradient.size());
    lines_.multiply_rows(gradient);
    RETURN_IF_ERROR(step_optimizer());
    RETURN_IF_ERROR(scale_rows(run_.step + 1));
    const Named change = named(gradient.data());
    // With what waits in the residual this is what the view lacks, now: so no rounding of earlier steps
    // stays.
    const std::span<const float> residual = run_.pull->residual(change.name, change.first);
    assert(residual.empty() || residual.size() == gradient.size());
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      gradient[i] = (master_[i] - view_[i]) - (residual.empty() ? 0.0F : residual[i]);
    }
    const MessageId id = run_.model.message(number_, Way::kPull, run_.step, run_.transport.rank());
    ASSIGN_OR_RETURN(const auto pieces, run_.pull->encode(std::span(&change, 1), id));
    ++run_.counts.encodes;
    const Named view = named(view_.data());
    RETURN_IF_ERROR(run_.pull->decode(pieces, std::span(&view, 1), id, Into::kAccumulate, 1.0F));
    pulls_.add(with_scales(pieces), [this](std::size_t worker) { return pushes_.has_counted(worker); });
    return send();
  }

  bool has_changed() const noexcept { return pulls_.version() > run_.step; }

  void commit() {
    // A codec that keeps nothing has sent all that will ever be sent of the change.
    if (run_.pull->residual(run_.model.name(part()), part().first).empty()) master_ = view_;
  }

  // Sends each worker that has taken its last message the next one.
  Status send() {
    for (std::size_t worker = 0; worker < run_.workers.size(); ++worker) {
      if (run_.workers.is_dropped(worker)) {
        forget(worker);
        continue;
      }
      RETURN_IF_ERROR(send_next(worker));
    }
    pulls_.forget_sent();
    return {};
  }

  // The server closes: pushes that came for a step which none will make are late.
  void discard_pushes() {
    for (std::size_t worker = 0; worker < run_.workers.size(); ++worker) {
      if (!pushes_.discard(worker)) continue;
      ++run_.counts.late_pushes;
      if (!run_.workers.is_dropped(worker)) post(worker);
    }
  }

  // Operations that are under way: receives that a push may still fill, sends that another one waits for,
  // sends to workers that have not taken all but the last lag - 1 changes, and all of them.
  void add_receives(std::vector<Handle>& awaited) const {
    for (std::size_t worker = 0; worker < run_.workers.size(); ++worker) {
      if (pushes_.is_awaited(worker)) awaited.push_back(pushes_.receive(worker));
    }
  }

  void add_blocking_sends(std::vector<Handle>& awaited) const {
    for (std::size_t worker = 0; worker < run_.workers.size(); ++worker) {
      if (run_.workers.is_dropped(worker) || pulls_.is_idle(worker)) continue;
      if (pulls_.lacks_any(worker) || run_.is_closing) awaited.push_back(pulls_.send(worker));
    }
  }

  void add_laggards(std::uint64_t lag, std::vector<Handle>& awaited) const {
    for (std::size_t worker = 0; worker < run_.workers.size(); ++worker) {
      if (!run_.workers.is_dropped(worker) && pulls_.is_behind(worker, lag)) {
        awaited.push_back(pulls_.send(worker));
      }
    }
  }

  void add_posted(std::vector<Handle>& posted) const {
    for (std::size_t worker = 0; worker < run_.workers.size(); ++worker) {
      posted.push_back(pushes_.receive(worker));
      posted.push_back(pulls_.send(worker));
    }
  }

 private:
  void post(std::size_t worker) {
    // Rules may give a later step another codec.
    const Named whole = named(view_.data());
    const std::uint64_t bound = std::max(run_.push->message_bound(std::span(&whole, 1), run_.step),
                                         run_.push->message_bound(std::span(&whole, 1), run_.step + 1)) +
                                lines_.bound();
    const MutBytes room = pushes_.room(worker, bound);
    pushes_.await(worker, run_.transport.post_recv(run_.workers.rank_of(worker),
                                                   run_.model.tag(number_, Way::kPush), room));
  }

  Status take(std::size_t worker) {
    const Result<std::uint64_t> bytes =
        run_.transport.wait(pushes_.take_receive(worker), MachineClock::now());
    if (!bytes) return run_.dropped_or(worker, bytes.error());
    run_.counts.push_bytes += *bytes;
    std::optional<std::uint64_t> step;
    if (!run_.is_closing) step = run_.step;
    const Result<PushCollector::Arrival> arrival = pushes_.arrive(worker, *bytes, step);
    if (!arrival) return refuse(worker, arrival.error());
    if (*arrival == PushCollector::Arrival::kLate) ++run_.counts.late_pushes;
    if (*arrival == PushCollector::Arrival::kLate || *arrival == PushCollector::Arrival::kSkips) post(worker);
    return {};
  }

  // A push that servers have no use for ends the run, or its worker's part in it.
  Status refuse(std::size_t worker, const Error& error) {
    const int rank = run_.workers.rank_of(worker);
    Error named = fail_in("a push of rank " + std::to_string(rank) + ": ", error).value();
    named.suspect = rank;
    const bool is_its_fault = error.code != ErrorCode::kNoMemory;
    if (is_its_fault && run_.options.on_worker_loss == WorkerLoss::kDrop) run_.transport.drop(rank, named);
    return run_.dropped_or(worker, named);
  }

  Status decode(std::size_t worker, Bytes push, Into into, float scale) {
    const Named mean = named(run_.gradient.data());
    const int rank = run_.workers.rank_of(worker);
    if (lines_.has_squares(run_.step, *run_.push)) {
      ASSIGN_OR_RETURN(push, lines_.decode_squares(push, run_.step, rank, into, scale));
    }
    const MessageId id = run_.model.message(number_, Way::kPush, run_.step, rank);
    return run_.push->decode(push, std::span(&mean, 1), id, into, scale);
  }

  // With the mean of this step's pushes, in ServerRun::gradient.
  Status step_optimizer() {
    const std::span<const float> gradient(run_.gradient.data(), view_.size());
    const OptimizerRule& rule = lines_.rule(run_.step, *run_.push);
    const OptimizerSettings settings = settings_by(rule, run_.optimizer.settings(), run_.step);
    if (rule.rule != StepRule::kFactoredSecondMoment) {
      return run_.optimizer.step_by(settings, key_, master_, gradient);
    }
    const FactoredStep factored = lines_.factored(rule);
    return run_.optimizer.step_by(settings, key_, master_, gradient, &factored);
  }

  Status scale_rows(std::uint64_t step) {
    lines_.clear_scales();
    scales_.clear();
    if (!lines_.has_scales(step, *run_.push)) return {};
    ASSIGN_OR_RETURN(scales_,
                     lines_.encode_scales(run_.optimizer.moments(key_).second, step, run_.transport.rank(),
                                          lines_.rule(step, *run_.push).least_scale));
    return {};
  }

  SharedBytes with_scales(std::span<const Bytes> pieces) const {
    std::vector<Bytes> all{Bytes(scales_)};
    all.insert(all.end(), pieces.begin(), pieces.end());
    return std::make_shared<const std::vector<std::byte>>(joined(all));
  }

  // The view as one message, which all workers share that need it.
  Result<SharedBytes> encode_view(std::uint64_t version) {
    const Named view = named(view_.data());
    ASSIGN_OR_RETURN(const auto pieces,
                     run_.whole->encode(std::span(&view, 1), run_.model.message(number_, Way::kModel, version,
                                                                                run_.transport.rank())));
    run_.whole->commit();
    return with_scales(pieces);
  }

  Status send_next(std::size_t worker) {
    const bool has_more = pulls_.lacks_any(worker) || (run_.is_closing && !pulls_.is_ended(worker));
    if (pulls_.is_idle(worker) && !has_more) return {};
    if (!run_.transport.done(pulls_.send(worker))) return {};
    if (const auto gone = run_.transport.wait(pulls_.take_send(worker), MachineClock::now()); !gone) {
      return run_.dropped_or(worker, gone.error());
    }
    pulls_.taken(worker);
    ASSIGN_OR_RETURN(const Pull* const pull,
                     pulls_.next(worker, [this] { return encode_view(pulls_.version()); }));
    if (pull != nullptr) {
      if (pull->is_whole) ++run_.counts.whole_models;
      send(worker, *pull);
    } else if (run_.is_closing && pulls_.end(worker)) {
      pulls_.sent(worker, run_.transport.post_send(run_.workers.rank_of(worker),
                                                   run_.model.tag(number_, Way::kPull), {}));
    }
    return {};
  }

  void send(std::size_t worker, const Pull& pull) {
    assert(pull.body != nullptr);
    const Bytes pieces[] = {Bytes(pull.head), Bytes(*pull.body)};
    pulls_.sent(worker, run_.transport.post_send(run_.workers.rank_of(worker),
                                                 run_.model.tag(number_, Way::kPull), pieces));
    run_.counts.pull_bytes += pull.bytes();
  }

  // The operations of a worker that was dropped have failed. A push of it that had come whole counts in its
  // step.
  void forget(std::size_t worker) {
    for (const Handle handle : {pushes_.take_receive(worker), pulls_.take_send(worker)}) {
      (void)run_.transport.wait(handle, MachineClock::now());
    }
    pulls_.drop(worker);
  }

  ServerRun& run_;
  std::size_t number_;
  std::string key_;  // the optimizer's
  PartLines lines_;
  std::vector<float> view_;
  std::vector<float> master_;
  std::vector<std::byte> scales_;  // of the next pushes' rows, as a message; empty: they have none
  PushCollector pushes_;
  PullQueue pulls_;
};

}  // namespace deltawire
