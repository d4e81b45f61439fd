#include "simulation/scale.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <functional>

#include <sys/resource.h>

#include "simulation/elastic_run.h"

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;

// Rounds begin with it. All that happens at a beat is over long before the next, and what changes the members
// comes halfway.
constexpr Clock::duration kBeat = 100s;
constexpr std::array kPhases{"All meet", "A round", "A member has died: the others meet, and make a round",
                             "A process joins: all meet, and make a round", "A round, after which all leave"};

constexpr int kLast = kPhases.size() - 1;

ElasticPlan plan_of(int members) {
  ElasticPlan plan;
  plan.world = members;
  plan.spec = "direct(sparseloco:pull=3.125%)";
  plan.steps = kLast;
  plan.beat = kBeat;
  plan.timeout = 60s;
  plan.meeting = 60s;
  plan.longest = 16'384;
  plan.path = {10ms, 1ms, 1e12, true};
  plan.line = 125e6;
  plan.buffer = 1'000'000;
  plan.latencies = {500us, 2ms, 50};  // processors are busy
  plan.comes.assign(static_cast<std::size_t>(members), 1ms);
  plan.faults = {{.kind = ElasticFault::Kind::kKill, .process = members / 2, .at = 3 * kBeat / 2 + 1ms},
                 {.kind = ElasticFault::Kind::kJoin, .at = 5 * kBeat / 2 + 1ms}};
  return plan;
}

Load combined(const Load& one, const Load& other, auto operation) {
  return {operation(one.bytes_out, other.bytes_out), operation(one.bytes_in, other.bytes_in),
          operation(one.calls, other.calls), operation(one.streams, other.streams)};
}

double processor_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double resident_bytes() {
  rusage used{};
  (void)::getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_maxrss) * 1024;
}

// Reads what the loads have grown by, and the processor's time.
class Meter {
 public:
  explicit Meter(int members) : before_(static_cast<std::size_t>(members) + 1) {}

  void read(Network& network, Scale& scale) {
    ScalePhase& phase = scale.phases.emplace_back();
    phase.processor_seconds = processor_seconds() - processor_before_;
    for (std::size_t i = 0; i < before_.size(); ++i) {
      const Load now = network.lines().load(static_cast<int>(i));
      const Load one = combined(now, before_[i], std::minus());
      phase.all = combined(phase.all, one, std::plus());
      if (one.bytes() > phase.busiest.bytes()) phase.busiest = one;
      before_[i] = now;
    }
    processor_before_ = processor_seconds();
    if (scale.phases.size() == 2)
      scale.streams = network.open_ends() / static_cast<std::uint64_t>(scale.members);
  }

 private:
  std::vector<Load> before_;
  double processor_before_ = processor_seconds();
};

// Somebody is through with it then.
void note_end(Scale& scale, int number, Deadline end) {
  if (number > kLast) return;
  double& latest = scale.phases[static_cast<std::size_t>(number)].seconds;
  latest =
      std::max(latest, std::chrono::duration<double>(end - Deadline(kRunBegins) - number * kBeat).count());
}

// "1.23": three digits.
std::string digits(double value) {
  std::array<char, 32> text{};
  const int before = value < 1 ? 1 : 1 + static_cast<int>(std::log10(value));
  (void)std::snprintf(text.data(), text.size(), "%.*f", std::max(0, 3 - before), value);
  return text.data();
}

std::string row_of(const std::string& name, const std::vector<double>& values, const char* mark) {
  std::string text = "| " + (mark + name) + mark;
  for (const double value : values) text += " | " + (mark + digits(value)) + mark;
  return text + " |\n";
}

// A row for each measured one and, in italics, for each wanted number of members: by the power with which the
// two largest ones differ.
std::string rows_of(std::span<const Scale> measured, std::span<const int> wanted, const auto& figures) {
  std::string text = "|---:";
  for (std::size_t i = figures(measured.front()).size(); i > 0; --i) text += "|---:";
  text += "|\n";
  for (const Scale& each : measured) text += row_of(std::to_string(each.members), figures(each), "");
  if (measured.size() < 2) return text;
  const Scale& last = measured.back();
  const Scale& other = measured[measured.size() - 2];
  const auto high = figures(last);
  const auto low = figures(other);
  const auto growth = [](int from, int to) { return std::log(static_cast<double>(to) / from); };
  std::vector<double> powers;
  for (std::size_t i = 0; i < high.size(); ++i) {
    const double ratio = high[i] > 0 && low[i] > 0 ? high[i] / low[i] : 1;
    powers.push_back(std::log(ratio) / growth(other.members, last.members));
  }
  text += row_of("power of N", powers, "*");
  for (const int members : wanted) {
    if (members <= last.members) continue;
    std::vector<double> expected = high;
    for (std::size_t i = 0; i < high.size(); ++i) {
      expected[i] *= std::exp(powers[i] * growth(last.members, members));
    }
    text += row_of(std::to_string(members), expected, "*");
  }
  return text;
}

}  // namespace

Scale measure_scale(int members) {
  Scale scale;
  scale.members = members;
  Meter meter(members);
  ElasticPlan plan = plan_of(members);
  plan.look = [&](Network& network) { meter.read(network, scale); };
  Trace trace(false);
  ElasticRun run(plan, trace);
  scale.broken = run.run();
  scale.phases.resize(kPhases.size());
  for (const auto& life : run.lives()) {
    scale.reducer_bytes = std::max(scale.reducer_bytes, life->memory);
    if (life->process < members) note_end(scale, 0, life->met);
    note_end(scale, kLast, life->left);
  }
  for (const ElasticCommit& commit : run.commits()) {
    note_end(scale, static_cast<int>(commit.step) + 1, commit.at);
  }
  scale.resident_bytes = resident_bytes() / members;
  return scale;
}

std::string scale_tables(std::span<const Scale> measured, std::span<const int> wanted) {
  std::string text;
  for (std::size_t phase = 0; phase < kPhases.size(); ++phase) {
    const auto figures = [phase](const Scale& scale) {
      const ScalePhase& at = scale.phases[phase];
      return std::vector<double>{at.seconds,
                                 static_cast<double>(at.busiest.bytes_out) / 1e6,
                                 static_cast<double>(at.busiest.bytes_in) / 1e6,
                                 static_cast<double>(at.busiest.calls),
                                 static_cast<double>(at.busiest.streams),
                                 static_cast<double>(at.all.bytes_out) / 1e6,
                                 static_cast<double>(at.all.calls),
                                 static_cast<double>(at.all.streams) / 2,
                                 at.processor_seconds};
    };
    text += "\n" + std::string(kPhases[phase]) +
            ":\n\n| members | s | busiest: MB out | MB in | sends | connections | all: MB | sends | "
            "connections | processor s |\n" +
            rows_of(measured, wanted, figures);
  }
  const auto held = [](const Scale& scale) {
    return std::vector<double>{static_cast<double>(scale.streams),
                               static_cast<double>(scale.reducer_bytes) / 1e6, scale.resident_bytes / 1e6};
  };
  return text +
         "\nWhat a member holds:\n\n| members | connections | MB of its reducer | MB of the simulation |\n" +
         rows_of(measured, wanted, held);
}

}  // namespace deltawire::simulation
