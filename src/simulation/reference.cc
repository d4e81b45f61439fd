#include "simulation/reference.h"

#include <map>
#include <string>
#include <utility>

#include "simulation/network.h"
#include "transport/mesh/engine.h"

namespace deltawire::simulation {
namespace {

constexpr std::uint64_t kSteps = 8;

}  // namespace

const Reference& Reference::of(const Plan& plan) {
  static std::map<std::pair<std::string, int>, Reference> formed;
  const auto key = std::pair(plan.spec, plan.world);
  const auto found = formed.find(key);
  if (found != formed.end()) return found->second;
  return formed.emplace(key, Reference(plan)).first->second;
}

Reference::Reference(const Plan& plan) : steps_(kSteps) {
  const Plan calm = undisturbed(plan);
  Trace trace(false);
  Scheduler scheduler(0, calm.latencies, trace);
  Network network(0, scheduler, trace);
  auto links = network.connect(calm.world, calm.path, calm.buffer);
  std::vector<Ledger> ledgers(static_cast<std::size_t>(calm.world));
  for (AfterStep& step : steps_) step.states.resize(ledgers.size());
  const auto run = [&](int rank) {
    const auto own = static_cast<std::size_t>(rank);
    Engine transport({rank, 0}, std::move(links[own]), nullptr, GuardedFd());
    ReducerOptions options;
    options.threads = 1;
    const auto reducer = *make_reducer(calm.spec, options);
    for (std::uint64_t number = 0; number < kSteps; ++number) {
      Gradient tensors = gradient(rank, number);
      add(ledgers[own].given, tensors);
      const auto done =
          reducer->all_reduce(named(tensors), {number}, transport, scheduler.now() + calm.timeout);
      if (!done) return;
      add(ledgers[own].means, tensors);
      steps_[number].states[own] = *reducer->save();
      if (rank == 0) steps_[number].means = std::move(tensors);
    }
    ledgers[own].waiting = waiting_in(calm.spec, steps_.back().states[own], calm.world);
  };
  for (int rank = 0; rank < calm.world; ++rank) scheduler.start_on(rank, [&run, rank] { run(rank); });
  const bool is_stuck = !scheduler.run(100'000'000).empty();
  std::vector<const Ledger*> all;
  all.reserve(ledgers.size());
  for (const Ledger& ledger : ledgers) all.push_back(&ledger);
  if (is_stuck || steps_.back().means.empty()) {
    imbalance_ = 1;
  } else if (!ledgers.front().waiting.empty()) {
    imbalance_ = simulation::imbalance(all);
  }
}

}  // namespace deltawire::simulation
