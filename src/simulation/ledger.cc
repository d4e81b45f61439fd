#include "simulation/ledger.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>
#include <map>
#include <utility>

#include "base/random.h"
#include "deltawire/spec.h"
#include "reduce/reducer_state.h"
#include "simulation/network.h"
#include "transport/mesh/engine.h"

namespace deltawire::simulation {

namespace {

constexpr std::array<std::size_t, 4> kCounts{1500, 400, 20, 1};
constexpr std::array kNames{"embedding", "layer.weight", "layer.bias", "scale"};

}  // namespace

Gradient gradient(int rank, std::uint64_t step, std::size_t longest) {
  Gradient tensors;
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    CounterRng rng(1000 * step + static_cast<std::uint64_t>(rank), i);
    auto& values = tensors.emplace_back(i == 0 ? longest : kCounts[i]);
    for (float& value : values) {
      const double u = rng.next_uniform() - 0.5;
      value = u > 0.4 ? 0.0F : static_cast<float>(u * u * u);
    }
  }
  return tensors;
}

std::vector<Named> named(Gradient& tensors) {
  std::vector<Named> all;
  all.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    all.push_back({kNames[i], {tensors[i].data(), tensors[i].size(), DType::kF32}, 0});
  }
  return all;
}

void add(Sums& sums, const Gradient& tensors) {
  sums.resize(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    sums[i].resize(tensors[i].size());
    for (std::size_t k = 0; k < tensors[i].size(); ++k) sums[i][k] += static_cast<double>(tensors[i][k]);
  }
}

Sums waiting_in(const std::string& text, Bytes state, int world) {
  const Spec spec = *Spec::parse(text);
  if (spec.pattern == "ring") return {};
  const std::size_t channels = spec.pattern == "direct" ? 2 : 1;
  const std::string magic(reinterpret_cast<const char*>(state.data()), 8);
  const auto parts = unpack_reducer_state(state, magic, channels);
  if (!parts) return {};
  Sums waiting;
  for (const std::size_t count : kCounts) waiting.emplace_back(count);
  for (std::size_t c = 0; c < channels; ++c) {
    const ChannelOptions options{.policy = {}, .means = c == 1};
    const auto channel = *make_channel(spec.codecs, options);
    if (!channel->load(parts->channels[c])) return {};
    for (std::size_t i = 0; i < kCounts.size(); ++i) {
      const auto residual = channel->residual(kNames[i], 0);
      // A rank's own gradients count as one of so many in the mean; an owner's residual is of the mean.
      const double weight = c == 0 ? 1.0 / world : 1.0;
      for (std::size_t k = 0; k < residual.size(); ++k) {
        waiting[i][k] += weight * static_cast<double>(residual[k]);
      }
    }
  }
  return waiting;
}

double imbalance(const std::vector<const Ledger*>& ledgers) {
  assert(!ledgers.empty());
  double worst = 0;
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    for (std::size_t k = 0; k < kCounts[i]; ++k) {
      double in = 0;
      double out = ledgers.front()->means[i][k];
      for (const Ledger* ledger : ledgers) {
        in += ledger->given[i][k] / static_cast<double>(ledgers.size());
        out += ledger->waiting[i][k];
      }
      worst = std::max(worst, std::abs(in - out));
    }
  }
  return worst;
}

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
    const auto reducer = *make_reducer(calm.spec, {.policy = {}, .threads = 1});
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
