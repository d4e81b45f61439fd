#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "base/errors.h"
#include "server/served_model.h"
#include "simulation/job.h"
#include "simulation/served_run.h"

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;

// The model's first values are those of no gradient, and a worker's own are never used.
constexpr int kModel = 60;
constexpr int kOther = 61;

// The largest difference between two values.
float furthest(std::span<const float> one, std::span<const float> other) {
  float most = 0;
  for (std::size_t k = 0; k < one.size(); ++k) most = std::max(most, std::abs(one[k] - other[k]));
  return most;
}

class ServedRank {
 public:
  ServedRank(ServedRun& run, Job& job, int rank)
      : run_(run),
        plan_(run.plan()),
        job_(job),
        rank_(rank),
        dice_(job.plan().seed, 100 + static_cast<std::uint64_t>(rank)) {}

  void live() {
    transport_ = std::make_unique<Engine>(MeshMember{rank_, job_.epoch()}, job_.take_links(rank_), nullptr,
                                          GuardedFd());
    const Status done = rank_ < plan_.options.servers ? serve() : work();
    if (!done) note("fails: " + done.error().message);
    if (!job_.log(rank_).is_dead) {
      run_.ending(rank_).is_closed = done.has_value();
      Ending ending;
      ending.failed_at = job_.scheduler().read();
      if (!done) ending.error = done.error();
      job_.log(rank_).endings.push_back(std::move(ending));
    }
    in_time(job_, rank_, "leaving", job_.scheduler().now() + kLeaving, [&] {
      transport_.reset();
      return 0;
    });
    job_.end(rank_);
  }

 private:
  Status serve();
  Status work();
  Status take_step(ParameterWorker& worker);
  Status push_all(ParameterWorker& worker);
  Status pull_all(ParameterWorker& worker);
  Status come_to(std::uint64_t step, Fault::Point point) {
    return meet_mishap(job_, rank_, *transport_, job_.come_to(rank_, step, point));
  }
  void note(const std::string& text) { job_.note("rank " + std::to_string(rank_) + " " + text); }
  int worker_number() const noexcept { return rank_ - plan_.options.servers; }
  std::uint64_t last_step() const { return plan_.steps[static_cast<std::size_t>(worker_number())]; }
  void reach(std::uint64_t version);
  void see_model(std::uint64_t version);
  std::string see_step(const ParameterServer& server, const Gradient& views, Gradient masters);
  Gradient waits_in(const ParameterWorker& worker) const;
  // With backup workers and staleness a push may be late whose step ended long ago.
  bool knows_what_was_sent() const { return plan_.options.backup == 0 || plan_.options.staleness == 0; }
  void check_rest(const ParameterWorker& worker);
  Gradient sent_in(std::uint64_t step, Gradient& waits, bool has_ended);
  void lose_rest(std::span<float> part, std::size_t number, std::uint64_t step);
  Status resume(auto& rank);
  void save(const auto& rank, std::uint64_t step, bool is_first = false);
  void report(const std::string& broken) {
    if (!broken.empty()) job_.violate(rank_, broken);
  }

  // A call with a deadline. Where workers are dropped, waits start over with each of them, and a worker lets
  // the servers decide, as often as there are ranks.
  auto timed(const char* what, auto act) {
    const Clock::duration timeout = job_.plan().timeout;
    const Deadline by = job_.scheduler().now() + timeout;
    const Clock::duration longer = plan_.drops() ? (1 + plan_.job.world) * timeout : Clock::duration{};
    return in_time(job_, rank_, what, by + longer, [&] { return act(by); });
  }

  ServedRun& run_;
  const ServedPlan& plan_;
  Job& job_;
  int rank_;
  Dice dice_;
  std::unique_ptr<Engine> transport_;
  Gradient model_;
  Gradient waits_;  // worker: what waits for its next push
};

// layer.weight is a matrix.
std::vector<Named> as_served(Gradient& tensors) {
  static constexpr std::array<std::uint64_t, 2> kDims{20, 20};
  std::vector<Named> all = named(tensors);
  assert(all[1].tensor.count == kDims[0] * kDims[1]);
  all[1].tensor.dims = kDims;
  return all;
}

void ServedRank::reach(std::uint64_t version) {
  if (job_.log(rank_).is_dead) return;
  job_.log(rank_).next_step = run_.ending(rank_).version = version;
}

void ServedRank::save(const auto& rank, std::uint64_t step, bool is_first) {
  auto state = rank.save();
  if (!state) return job_.violate(rank_, "can't be saved: " + state.error().message);
  report(run_.snapshots().write(job_, rank_, step, *std::move(state), is_first));
}

// As a program does that starts again (docs/guides/parameter-server.md, "Snapshots").
Status ServedRank::resume(auto& rank) {
  if (plan_.every == 0) return {};
  const std::uint64_t step = run_.resumed_at();
  RETURN_IF_ERROR(come_to(step, Fault::Point::kBegin));
  const bool has_saved = run_.snapshots().has(rank_, step);
  if (has_saved) {
    std::vector<std::byte> state;
    report(run_.snapshots().read(job_, rank_, step, state));
    RETURN_IF_ERROR(rank.load(state));
  }
  report(run_.snapshots().drop_after(job_, rank_, step));
  if (rank_ < plan_.options.servers && !has_saved) save(rank, step, true);
  return {};
}

Status ServedRank::serve() {
  model_ = gradient(kModel, 0, plan_.longest);
  const auto server = *make_server(as_served(model_), plan_.optimizer, plan_.options, *transport_);
  RETURN_IF_ERROR(resume(*server));
  reach(server->steps());
  for (;;) {
    const std::uint64_t step = server->steps();
    RETURN_IF_ERROR(come_to(step, Fault::Point::kBegin));
    Gradient masters;
    Gradient views;
    for (std::size_t i = 0; i < server->parts().size(); ++i) {
      masters.emplace_back(server->master(i).begin(), server->master(i).end());
      views.emplace_back(server->view(i).begin(), server->view(i).end());
    }
    const auto made = timed("step", [&](Deadline by) { return server->step(by); });
    run_.ending(rank_).dropped.assign(server->dropped().begin(), server->dropped().end());
    if (!made) return forward_error(made);
    if (!*made) return {};
    reach(step + 1);
    note("has made step " + std::to_string(step));
    report(see_step(*server, views, std::move(masters)));
    RETURN_IF_ERROR(come_to(step, Fault::Point::kAfterVote));
    if (plan_.every > 0 && (step + 1) % plan_.every == 0) save(*server, step + 1);
  }
}

// A step has been made, of these. What promise that breaks.
std::string ServedRank::see_step(const ParameterServer& server, const Gradient& views, Gradient masters) {
  std::string broken;
  for (std::size_t i = 0; i < server.parts().size(); ++i) {
    const ServedPart& part = server.parts()[i];
    run_.see(job_, rank_, server.steps(), part, server.view(i));
    const std::span<const float> master = server.master(i);
    const float behind = furthest(master, server.view(i));
    if (behind > 1.001F * furthest(master, views[i])) {
      broken = "the change of tensor " + std::to_string(part.tensor) + " leaves the view further behind";
    }
    if (behind > 0 && loses(plan_.options.pull)) broken = "the view lacks what no residual keeps";
    for (std::size_t k = 0; k < master.size(); ++k) masters[i][k] = master[k] - masters[i][k];
    run_.change(job_, rank_, server.steps() - 1, part, masters[i]);
  }
  return broken;
}

void ServedRank::see_model(std::uint64_t version) {
  reach(version);
  for (const ServedPart& part : run_.parts()) {
    run_.see(job_, rank_, version, part, std::span(model_[part.tensor]).subspan(part.first, part.count));
  }
}

Gradient ServedRank::waits_in(const ParameterWorker& worker) const {
  Gradient waits;
  for (std::size_t tensor = 0; tensor < model_.size(); ++tensor) {
    waits.emplace_back(model_[tensor].size());
    (void)worker.add_residual(tensor, waits.back());
  }
  return waits;
}

Status ServedRank::work() {
  model_ = gradient(kOther, 0, plan_.longest);
  const auto worker = *make_worker(as_served(model_), plan_.options, *transport_);
  RETURN_IF_ERROR(resume(*worker));
  RETURN_IF_ERROR(timed("open", [&](Deadline by) { return worker->open(by); }));
  see_model(worker->version());
  waits_ = waits_in(*worker);
  while (worker->step() < last_step() && !worker->has_ended()) {
    RETURN_IF_ERROR(take_step(*worker));
  }
  RETURN_IF_ERROR(timed("close", [&](Deadline by) { return worker->close(by); }));
  see_model(worker->version());
  check_rest(*worker);
  return {};
}

// Once it has closed, what it sent for steps that were not made waits again.
void ServedRank::check_rest(const ParameterWorker& worker) {
  if (!knows_what_was_sent()) return;
  const Gradient waits = waits_in(worker);
  for (std::size_t tensor = 0; tensor < waits.size(); ++tensor) {
    for (std::size_t k = 0; k < waits[tensor].size(); ++k) {
      float lost = waits_[tensor][k] - waits[tensor][k];
      for (std::uint64_t step = worker.version(); step < run_.steps().size(); ++step) {
        const Gradient& sent = run_.steps()[step].sent[static_cast<std::size_t>(worker_number())];
        if (!sent.empty()) lost += sent[tensor][k];
      }
      if (std::abs(lost) < 1e-5F) continue;
      return job_.violate(rank_, "what was sent for steps that were not made is lost");
    }
  }
}

Status ServedRank::push_all(ParameterWorker& worker) {
  const Gradient own = gradient(worker_number(), worker.step(), plan_.longest);
  for (std::size_t tensor = model_.size(); tensor-- > 0;) {
    if (dice_.one_in(2)) job_.scheduler().sleep(dice_.time_between(1ns, job_.plan().pause / 4));
    RETURN_IF_ERROR(worker.push(tensor, own[tensor]));
  }
  return {};
}

Status ServedRank::pull_all(ParameterWorker& worker) {
  for (std::size_t tensor = 0; plan_.is_eager && tensor < model_.size(); ++tensor) {
    RETURN_IF_ERROR(timed("pull", [&](Deadline by) { return worker.pull(tensor, by); }));
  }
  return timed("pull", [&](Deadline by) { return worker.pull(by); });
}

// What the servers got of its gradient and of what waited: all that does not wait now. `waits`: after the
// step.
//
// Without a residual that is what the codec makes of them; and what waits is nothing, or that, if it came too
// late, or all, if it was not sent. Or the servers have ended: then all that they did not answer waits, and
// check_rest() looks at the sum.
Gradient ServedRank::sent_in(std::uint64_t step, Gradient& waits, bool has_ended) {
  Gradient sent = gradient(worker_number(), step, plan_.longest);
  for (std::size_t number = 0; number < run_.parts().size(); ++number) {
    const ServedPart& part = run_.parts()[number];
    const auto of = [&part](Gradient& tensors) {
      return std::span(tensors[part.tensor]).subspan(part.first, part.count);
    };
    const std::span values = of(sent);
    const std::span rest = of(waits);
    for (std::size_t k = 0; k < part.count; ++k) values[k] += of(waits_)[k];
    const bool is_lossy = loses(plan_.options.push);
    if (is_lossy && !std::ranges::equal(values, rest)) lose_rest(values, number, step);
    const bool is_late = std::ranges::equal(values, rest);
    const bool waits_any = std::ranges::any_of(rest, [](float value) { return value != 0.0F; });
    if (is_lossy && !is_late && waits_any) {
      if (!has_ended) report("what waits is neither all nor what was sent, without a residual");
      std::ranges::fill(rest, 0.0F);
    }
    for (std::size_t k = 0; k < part.count; ++k) values[k] -= rest[k];
  }
  return sent;
}

// Makes of a part what its server decodes.
void ServedRank::lose_rest(std::span<float> part, std::size_t number, std::uint64_t step) {
  const auto model = *ServedModel::make(as_served(model_), plan_.options, *transport_);
  const auto channel = *make_channel(plan_.options.push, {});
  const MessageId id = model.message(number, Way::kPush, step, rank_);
  const Named whole = model.part_of(run_.parts()[number], part.data());
  const std::vector<std::byte> message = joined(*channel->encode(std::span(&whole, 1), id));
  const bool is_read = channel->decode(message, std::span(&whole, 1), id, Into::kOverwrite, 1.0F).has_value();
  if (!is_read) report("a push is not read");
}

Status ServedRank::take_step(ParameterWorker& worker) {
  const std::uint64_t step = worker.step();
  job_.scheduler().sleep(dice_.time_between(1ns, job_.plan().pause));
  RETURN_IF_ERROR(come_to(step, Fault::Point::kBegin));
  RETURN_IF_ERROR(push_all(worker));
  RETURN_IF_ERROR(come_to(step, Fault::Point::kBeforeVote));
  RETURN_IF_ERROR(pull_all(worker));
  see_model(worker.version());
  if (knows_what_was_sent()) {
    Gradient waits = waits_in(worker);
    run_.sent(job_, rank_, step, sent_in(step, waits, worker.has_ended()));
    waits_ = std::move(waits);
  }
  RETURN_IF_ERROR(come_to(step, Fault::Point::kAfterVote));
  if (plan_.every == 0 || worker.step() % plan_.every != 0) return {};
  const Status level = timed("catch_up", [&](Deadline by) { return worker.catch_up(by); });
  if (level) save(worker, worker.step());
  return level;
}

}  // namespace

void run_served_rank(ServedRun& run, Job& job, int rank) {
  ServedRank(run, job, rank).live();
}

}  // namespace deltawire::simulation
