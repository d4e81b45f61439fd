#include "simulation/served_rank.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "simulation/work.h"

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
  Gradient waits_in(const ParameterWorker& worker) const;
  // With backup workers and staleness a push may be late whose step ended long ago.
  bool knows_what_was_sent() const { return plan_.options.backup == 0 || plan_.options.staleness == 0; }
  void check_rest(const ParameterWorker& worker);
  template <class Rank>
  void save(const Rank& rank, std::uint64_t step);

  // A call with a deadline. Where workers are dropped, waits start over with each of them, and a worker lets
  // the servers decide, as often as there are ranks.
  template <class Act>
  auto timed(const char* what, Act act) {
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

void ServedRank::reach(std::uint64_t version) {
  if (job_.log(rank_).is_dead) return;
  job_.log(rank_).next_step = run_.ending(rank_).version = version;
}

// It takes a while until a snapshot is on the disk. Of a process that dies meanwhile nothing is.
template <class Rank>
void ServedRank::save(const Rank& rank, std::uint64_t step) {
  auto state = rank.save();
  if (!state) {
    job_.violate(rank_, "can't be saved: " + state.error().message);
    return;
  }
  job_.scheduler().sleep(dice_.time_between(1us, plan_.writing));
  run_.save(job_, rank_, step, *std::move(state));
}

Status ServedRank::serve() {
  model_ = gradient(kModel, 0);
  const auto server = *make_server(named(model_), plan_.optimizer, plan_.options, *transport_);
  if (const auto* saved = run_.saved(rank_); saved != nullptr) {
    if (Status loaded = server->load(*saved); !loaded) return loaded;
  } else if (plan_.every > 0) {
    save(*server, 0);
  }
  reach(server->steps());
  for (;;) {
    const std::uint64_t step = server->steps();
    if (Status goes_on = come_to(step, Fault::Point::kBegin); !goes_on) return goes_on;
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
    for (std::size_t i = 0; i < server->parts().size(); ++i) {
      const std::size_t tensor = server->parts()[i].tensor;
      run_.see(job_, rank_, step + 1, tensor, server->view(i));
      const std::span<const float> master = server->master(i);
      if (furthest(master, server->view(i)) > 1.001F * furthest(master, views[i])) {
        job_.violate(rank_,
                     "the change of tensor " + std::to_string(tensor) + " leaves the view further behind");
      }
      for (std::size_t k = 0; k < master.size(); ++k) masters[i][k] = master[k] - masters[i][k];
      run_.change(job_, rank_, step, tensor, std::move(masters[i]));
    }
    if (Status goes_on = come_to(step, Fault::Point::kAfterVote); !goes_on) return goes_on;
    if (plan_.every > 0 && (step + 1) % plan_.every == 0) save(*server, step + 1);
  }
}

void ServedRank::see_model(std::uint64_t version) {
  reach(version);
  for (std::size_t tensor = 0; tensor < model_.size(); ++tensor) {
    run_.see(job_, rank_, version, tensor, model_[tensor]);
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
  model_ = gradient(kOther, 0);
  const auto worker = *make_worker(named(model_), plan_.options, *transport_);
  if (const auto* saved = run_.saved(rank_); saved != nullptr) {
    if (Status loaded = worker->load(*saved); !loaded) return loaded;
  }
  if (Status opened = timed("open", [&](Deadline by) { return worker->open(by); }); !opened) return opened;
  see_model(worker->version());
  waits_ = waits_in(*worker);
  while (worker->step() < last_step() && !worker->has_ended()) {
    if (Status taken = take_step(*worker); !taken) return taken;
  }
  if (Status closed = timed("close", [&](Deadline by) { return worker->close(by); }); !closed) return closed;
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
  const Gradient own = gradient(worker_number(), worker.step());
  for (std::size_t tensor = model_.size(); tensor-- > 0;) {
    if (dice_.one_in(2)) job_.scheduler().sleep(dice_.time_between(1ns, job_.plan().pause / 4));
    if (Status pushed = worker.push(tensor, own[tensor]); !pushed) return pushed;
  }
  return {};
}

Status ServedRank::pull_all(ParameterWorker& worker) {
  for (std::size_t tensor = 0; plan_.is_eager && tensor < model_.size(); ++tensor) {
    if (Status pulled = timed("pull", [&](Deadline by) { return worker.pull(tensor, by); }); !pulled) {
      return pulled;
    }
  }
  return timed("pull", [&](Deadline by) { return worker.pull(by); });
}

Status ServedRank::take_step(ParameterWorker& worker) {
  const std::uint64_t step = worker.step();
  job_.scheduler().sleep(dice_.time_between(1ns, job_.plan().pause));
  if (Status goes_on = come_to(step, Fault::Point::kBegin); !goes_on) return goes_on;
  if (Status pushed = push_all(worker); !pushed) return pushed;
  if (Status goes_on = come_to(step, Fault::Point::kBeforeVote); !goes_on) return goes_on;
  if (Status pulled = pull_all(worker); !pulled) return pulled;
  see_model(worker.version());
  if (knows_what_was_sent()) {
    Gradient sent = gradient(worker_number(), step);
    Gradient waits = waits_in(worker);
    for (std::size_t tensor = 0; tensor < sent.size(); ++tensor) {
      for (std::size_t k = 0; k < sent[tensor].size(); ++k) {
        sent[tensor][k] += waits_[tensor][k] - waits[tensor][k];
      }
    }
    waits_ = std::move(waits);
    run_.sent(job_, rank_, step, std::move(sent));
  }
  if (Status goes_on = come_to(step, Fault::Point::kAfterVote); !goes_on) return goes_on;
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
