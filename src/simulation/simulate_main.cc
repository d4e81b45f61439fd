// deltawire_simulate: runs seeds, and prints those that break a promise (docs/design/simulation.md).
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "simulation/scale.h"
#include "simulation/simulate.h"

namespace {

using deltawire::simulation::Outcome;

constexpr const char* kHelp =
    "usage: deltawire_simulate [--seed N] [--seeds COUNT] [--ranks N] [--meetings | --servers | --elastic] "
    "[--trace] [--keep-going]\n"
    "       deltawire_simulate --scale N...\n"
    "Simulates jobs in one thread, on a clock of their own: what goes wrong, and when, follows from the "
    "seed.\n"
    "  --seed N        the first seed (default 0)\n"
    "  --seeds COUNT   how many seeds, one after the other (default 1)\n"
    "  --ranks N       3 to 7 ranks instead of what the seed decides\n"
    "  --meetings      ranks that connect over TCP, instead of jobs of ranks that are connected\n"
    "  --servers       parameter servers and their workers\n"
    "  --elastic       elastic sessions, whose members die, leave and join\n"
    "  --trace         print what happens\n"
    "  --keep-going    go on after a seed that breaks a promise\n"
    "  --scale N...    what an elastic session costs with so many members each, smaller ones first\n"
    "Exit status: 0, or 1 if a promise was broken, or 2 for wrong usage.\n";

// What a seed is run as.
struct Kind {
  const char* option = "";
  Outcome (*run)(std::uint64_t seed, int world, bool prints) = deltawire::simulation::simulate;
  const char* counts = "steps committed";
};

constexpr Kind kJobs;
constexpr Kind kMeetings{" --meetings", deltawire::simulation::simulate_meeting, "ranks have met"};
constexpr Kind kServers{" --servers", deltawire::simulation::simulate_served, "steps served"};
constexpr Kind kElastic{" --elastic", deltawire::simulation::simulate_elastic, "steps seen committed"};

struct Options {
  std::uint64_t seed = 0;
  std::uint64_t seeds = 1;
  std::uint64_t ranks = 0;
  const Kind* kind = &kJobs;
  bool traces = false;
  bool keeps_going = false;
  std::vector<int> scales;
};

constexpr std::uint64_t kMostMembers = 4096;

bool read_number(const char* text, std::uint64_t& number) {
  if (text == nullptr) return false;
  const char* const end = text + std::strlen(text);
  const auto read = std::from_chars(text, end, number);
  return read.ec == std::errc{} && read.ptr == end;
}

int usage() {
  std::fputs(kHelp, stderr);
  return 2;
}

// Whether the arguments make sense.
bool read(char** arguments, Options& options) {
  for (; *arguments != nullptr; ++arguments) {
    const std::string_view name = *arguments;
    if (name == "--trace") {
      options.traces = true;
    } else if (name == "--meetings") {
      options.kind = &kMeetings;
    } else if (name == "--servers") {
      options.kind = &kServers;
    } else if (name == "--elastic") {
      options.kind = &kElastic;
    } else if (name == "--keep-going") {
      options.keeps_going = true;
    } else if (name == "--scale") {
      for (std::uint64_t members = 0; read_number(arguments[1], members); ++arguments) {
        if (members < 3 || members > kMostMembers) return false;
        options.scales.push_back(static_cast<int>(members));
      }
      if (options.scales.empty()) return false;
    } else if (name == "--seed" || name == "--seeds" || name == "--ranks") {
      std::uint64_t& number = name == "--seed"    ? options.seed
                              : name == "--seeds" ? options.seeds
                                                  : options.ranks;
      if (!read_number(*++arguments, number)) return false;
    } else {
      return false;
    }
  }
  return options.ranks == 0 || (options.ranks >= 3 && options.ranks <= 7);
}

int print_scales(const std::vector<int>& members) {
  std::vector<deltawire::simulation::Scale> measured;
  for (const int each : members) {
    measured.push_back(deltawire::simulation::measure_scale(each));
    std::fprintf(stderr, "%d members: %s\n", each,
                 measured.back().broken.empty() ? "done" : measured.back().broken.c_str());
    if (!measured.back().broken.empty()) return 1;
  }
  constexpr std::array kWanted{1024, 4096};
  std::fputs(deltawire::simulation::scale_tables(measured, kWanted).c_str(), stdout);
  return 0;
}

}  // namespace

int main(int, char** arguments) {
  if (arguments[1] != nullptr && std::string_view(arguments[1]) == "--help") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  Options options;
  if (!read(arguments + 1, options)) return usage();
  if (!options.scales.empty()) return print_scales(options.scales);
  std::uint64_t broken = 0;
  Outcome all;
  for (std::uint64_t seed = options.seed; seed < options.seed + options.seeds; ++seed) {
    const Outcome one = options.kind->run(seed, static_cast<int>(options.ranks), options.traces);
    all.events += one.events;
    all.faults += one.faults;
    all.errors += one.errors;
    all.steps += one.steps;
    all.hash ^= one.hash;
    if (one.broken.empty()) continue;
    ++broken;
    std::printf("BROKEN: %s\n%s\n  again: deltawire_simulate%s --seed %llu --trace\n", one.broken.c_str(),
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
