// deltawire_simulate: runs seeds, and prints those that break a promise (docs/design/simulation.md).
#include <array>
#include <cstdint>
#include <cstdio>

#include <CLI/CLI.hpp>

#include "simulation/simulate.h"

namespace {

using deltawire::simulation::Outcome;

constexpr const char* kAbout =
    "Simulates jobs in one thread, on a clock of their own: what goes wrong, and when, follows from the "
    "seed.\n"
    "Exit status: 0, or 1 if a promise was broken, or 2 for wrong usage.";

// What a seed is run as.
struct Kind {
  const char* option = "";
  Outcome (*run)(std::uint64_t seed, int world, bool prints) = deltawire::simulation::simulate;
  const char* counts = "steps committed";
  const char* about = "";
};

constexpr Kind kJobs;
constexpr std::array kOthers{
    Kind{"--meetings", deltawire::simulation::simulate_meeting, "ranks have met",
         "ranks that connect over TCP, instead of jobs of ranks that are connected"},
    Kind{"--servers", deltawire::simulation::simulate_served, "steps served",
         "parameter servers and their workers"},
    Kind{"--elastic", deltawire::simulation::simulate_elastic, "steps seen committed",
         "elastic sessions, whose members die, leave and join"}};

struct Options {
  std::uint64_t seed = 0;
  std::uint64_t seeds = 1;
  int ranks = 0;
  const Kind* kind = &kJobs;
  bool traces = false;
  bool keeps_going = false;
};

void add_to(CLI::App& app, Options& options) {
  app.add_option("--seed", options.seed, "the first seed")->capture_default_str();
  app.add_option("--seeds", options.seeds, "how many seeds, one after the other")->capture_default_str();
  app.add_option("--ranks", options.ranks, "instead of what the seed decides")->check(CLI::Range(3, 7));
  auto* const kinds = app.add_option_group("run as")->require_option(0, 1);
  for (const Kind& kind : kOthers) {
    kinds->add_flag_callback(kind.option, [&] { options.kind = &kind; }, kind.about);
  }
  app.add_flag("--trace", options.traces, "print what happens");
  app.add_flag("--keep-going", options.keeps_going, "go on after a seed that breaks a promise");
}

}  // namespace

int main(int count, char** arguments) {
  CLI::App app(kAbout, "deltawire_simulate");
  Options options;
  add_to(app, options);
  try {
    app.parse(count, arguments);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  std::uint64_t broken = 0;
  Outcome all;
  for (std::uint64_t seed = options.seed; seed < options.seed + options.seeds; ++seed) {
    const Outcome one = options.kind->run(seed, options.ranks, options.traces);
    all.events += one.events;
    all.faults += one.faults;
    all.errors += one.errors;
    all.steps += one.steps;
    all.hash ^= one.hash;
    if (one.broken.empty()) continue;
    ++broken;
    std::printf("BROKEN: %s\n%s\n  again: deltawire_simulate %s --seed %llu --trace\n", one.broken.c_str(),
                one.plan.c_str(), options.kind->option, static_cast<unsigned long long>(seed));
    std::fflush(stdout);
    if (!options.keeps_going) break;
  }
  std::printf("%llu broken; %llu %s, %llu faults, %llu errors, %llu events; trace %016llx\n",
              static_cast<unsigned long long>(broken), static_cast<unsigned long long>(all.steps),
              options.kind->counts, static_cast<unsigned long long>(all.faults),
              static_cast<unsigned long long>(all.errors), static_cast<unsigned long long>(all.events),
              static_cast<unsigned long long>(all.hash));
  return broken == 0 ? 0 : 1;
}
