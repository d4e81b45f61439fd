// deltawire_width: what a step takes among many ranks, by simulation (docs/design/simulation.md).
#include <charconv>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "simulation/width.h"

namespace {

using deltawire::simulation::Width;
using deltawire::simulation::WidthPlan;

constexpr const char* kHelp =
    "usage: deltawire_width [OPTION VALUE] ...\n"
    "Simulates steps of many ranks, and prints the mean of one: its time, the processor time of all ranks\n"
    "and, of a rank: how often its threads began to run, messages and their KB, ballots and their KB, and\n"
    "the memory of its engine and, at most, of its reducer.\n"
    "  --ranks N        2 to 15000 (default 16)\n"
    "  --spec SPEC      pattern and codecs (default \"direct(fp32)\")\n"
    "  --values N       of the tensor (default 1000000); of 1 the step is little else than the vote\n"
    "  --scale N        simulates N times fewer values, each of which stands for N (default 1)\n"
    "  --steps N        that are counted, after one that is not (default 2)\n"
    "  --host N         ranks on each host (default: all)\n"
    "  --processors N   of each host (default 2)\n"
    "  --gbit N         a second, of each host's line in each direction (default 10)\n"
    "  --delay N        microseconds from host to host (default 50)\n"
    "  --COST-costs N   nanoseconds of processor time, where COST is step, call, byte, saved-byte, turn,\n"
    "                   entry or clock (defaults: docs/results/speed/many-ranks.md)\n"
    "Exit status: 0, or 1 if a step failed, or 2 for wrong usage.\n";

struct Options {
  WidthPlan plan;
  int host = 0;
  double gbit = 10;
  double delay = 50;
};

bool read_number(const char* text, double& number) {
  const char* const end = text + std::strlen(text);
  const auto read = std::from_chars(text, end, number);
  return read.ec == std::errc{} && read.ptr == end && number >= 0 && number <= 1e9;
}

// Whether there is such an option.
bool set(std::string_view name, double number, Options& options) {
  WidthPlan& plan = options.plan;
  const auto count = static_cast<std::uint64_t>(number);
  const auto few = static_cast<int>(number);
  const std::pair<std::string_view, double*> rates[] = {
      {"--gbit", &options.gbit},           {"--delay", &options.delay},
      {"--step-costs", &plan.costs.step},  {"--call-costs", &plan.costs.call},
      {"--byte-costs", &plan.costs.byte},  {"--saved-byte-costs", &plan.costs.saved_byte},
      {"--turn-costs", &plan.costs.turn},  {"--entry-costs", &plan.costs.entry},
      {"--clock-costs", &plan.costs.clock}};
  for (const auto& [option, rate] : rates) {
    if (name == option) *rate = number;
    if (name == option) return true;
  }
  if (name == "--ranks") return (plan.world = few) >= 2 && few <= 15'000;
  if (name == "--values") return (plan.values = count) >= 1;
  if (name == "--scale") return (plan.scale = count) >= 1;
  if (name == "--steps") return (plan.steps = few) >= 1;
  if (name == "--host") return (options.host = few) >= 1;
  if (name == "--processors") return (plan.hosts.processors = few) >= 1;
  return false;
}

// Whether the arguments make sense.
bool read(char** arguments, Options& options) {
  WidthPlan& plan = options.plan;
  for (; *arguments != nullptr; arguments += 2) {
    const std::string_view name = *arguments;
    if (arguments[1] == nullptr) return false;
    if (name == "--spec") {
      plan.spec = arguments[1];
      continue;
    }
    double number = 0;
    if (!read_number(arguments[1], number)) return false;
    if (!set(name, number, options)) return false;
  }
  return options.gbit > 0;
}

}  // namespace

int main(int, char** arguments) {
  if (arguments[1] != nullptr && std::string_view(arguments[1]) == "--help") {
    std::fputs(kHelp, stdout);
    return 0;
  }
  Options options;
  options.plan.hosts.processors = 2;
  if (!read(arguments + 1, options)) {
    std::fputs(kHelp, stderr);
    return 2;
  }
  WidthPlan& plan = options.plan;
  plan.hosts.ranks = options.host == 0 ? plan.world : options.host;
  plan.line = {std::chrono::nanoseconds(static_cast<std::int64_t>(1e3 * options.delay)),
               options.gbit * 1e9 / 8};
  const Width found = deltawire::simulation::simulate_width(plan);
  if (!found.error.empty()) {
    std::fprintf(stderr, "deltawire_width: %s\n", found.error.c_str());
    return 1;
  }
  std::puts(
      "| ranks | exchange | step, ms | its processor ms, all ranks | turns | messages | KB | ballots | KB | "
      "engine's KB | reducer's KB | trace |\n|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|");
  std::printf("| %d | `%s` | %.1f | %.1f | %.1f | %.0f | %.0f | %.0f | %.1f | %.0f | %.0f | %016llx |\n",
              plan.world, plan.spec.c_str(), 1e3 * found.seconds, 1e3 * found.processor_seconds, found.turns,
              found.messages, found.message_bytes / 1e3, found.ballots, found.ballot_bytes / 1e3,
              static_cast<double>(found.mesh_bytes) / 1e3, static_cast<double>(found.reducer_bytes) / 1e3,
              static_cast<unsigned long long>(found.hash));
  return 0;
}
