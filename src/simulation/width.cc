#include "simulation/width.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include <malloc.h>

#include "base/random.h"
#include "deltawire/reducer.h"
#include "transport/mesh/engine.h"

namespace deltawire::simulation {
namespace {

constexpr std::chrono::hours kPatience{10};

std::uint64_t heap_bytes() {
  return ::mallinfo2().uordblks;
}

// Of a normal distribution.
std::vector<float> draw(std::size_t count) {
  CounterRng rng(1);
  std::vector<float> values(count);
  for (float& value : values) {
    const double radius = std::sqrt(-2 * std::log(1 - rng.next_uniform()));
    value = static_cast<float>(radius * std::cos(2 * std::numbers::pi * rng.next_uniform()));
  }
  return values;
}

class WidthRun {
 public:
  explicit WidthRun(const WidthPlan& plan)
      : plan_(plan),
        machine_(plan.world, plan.hosts, plan.costs),
        network_(machine_, plan.world, plan.line, static_cast<double>(plan.scale)),
        drawn_(draw(std::max<std::uint64_t>(1, plan.values / plan.scale))) {}

  Width run() {
    for (int rank = 0; rank < plan_.world; ++rank)
      machine_.start_on(rank, [this, rank] { take_steps(rank); });
    const std::string stuck = machine_.run();
    if (found_.error.empty()) found_.error = stuck;
    found_.hash = machine_.hash();
    return found_;
  }

 private:
  // What a rank has used so far.
  struct Reading {
    Deadline time;
    Clock::duration used{};
    std::uint64_t turns = 0;
    TimedNetwork::Sent data;
    TimedNetwork::Sent control;
  };

  void take_steps(int rank);
  void take_step(Reducer& reducer, Transport& transport, std::uint64_t number, double& saved);
  Reading read(int rank) const;
  void add(const Reading& began, const Reading& ended);

  WidthPlan plan_;
  Width found_;
  TimedMachine machine_;
  TimedNetwork network_;
  std::vector<float> drawn_;  // every rank takes it from another place on
};

void WidthRun::take_steps(int rank) {
  auto links = network_.links_of(rank);
  const std::uint64_t held = heap_bytes();
  Engine transport({rank, 0}, std::move(links), nullptr, GuardedFd());
  if (rank == 0) found_.mesh_bytes = heap_bytes() - held;
  ReducerOptions options;
  options.threads = 1;
  const auto made = make_reducer(plan_.spec, options);
  if (!made) {
    found_.error = made.error().message;
    return;
  }
  Reducer& reducer = **made;
  double saved = 0;
  Reading began;
  for (int step = 0; step <= plan_.steps; ++step) {
    if (step == 1) began = read(rank);
    take_step(reducer, transport, static_cast<std::uint64_t>(step), saved);
  }
  add(began, read(rank));
  found_.reducer_bytes = std::max(found_.reducer_bytes, reducer.memory().peak_bytes);
}

void WidthRun::take_step(Reducer& reducer, Transport& transport, std::uint64_t number, double& saved) {
  std::vector<float> tensor(drawn_);
  const auto first = static_cast<std::size_t>(transport.rank()) * 997 % tensor.size();
  std::ranges::rotate(tensor, tensor.begin() + static_cast<std::ptrdiff_t>(first));
  machine_.spend(plan_.costs.step + plan_.costs.saved_byte * saved);
  const Named named{"tensor", {tensor.data(), tensor.size()}};
  const auto done =
      reducer.all_reduce(std::span(&named, 1), {.number = number}, transport, machine_.time() + kPatience);
  if (!done) {
    found_.error = done.error().message;
    return;
  }
  saved = static_cast<double>(plan_.scale) *
          std::max(0.0, static_cast<double>(done->raw_bytes) - static_cast<double>(done->bytes_sent));
}

WidthRun::Reading WidthRun::read(int rank) const {
  return {machine_.time(), machine_.used(rank), machine_.turns(rank),
          network_.sent(rank, TimedNetwork::Kind::kData), network_.sent(rank, TimedNetwork::Kind::kControl)};
}

void WidthRun::add(const Reading& began, const Reading& ended) {
  const auto seconds = [](Clock::duration time) { return std::chrono::duration<double>(time).count(); };
  const double steps = plan_.steps;
  const double all = steps * plan_.world;
  const auto mean = [all](std::uint64_t before, std::uint64_t after) {
    return static_cast<double>(after - before) / all;
  };
  found_.seconds += seconds(ended.time - began.time) / all;
  found_.processor_seconds += seconds(ended.used - began.used) / steps;
  found_.turns += mean(began.turns, ended.turns);
  found_.messages += mean(began.data.calls, ended.data.calls);
  found_.message_bytes += mean(began.data.bytes, ended.data.bytes);
  found_.ballots += mean(began.control.calls, ended.control.calls);
  found_.ballot_bytes += mean(began.control.bytes, ended.control.bytes);
}

}  // namespace

Width simulate_width(const WidthPlan& plan) {
  return WidthRun(plan).run();
}

}  // namespace deltawire::simulation
