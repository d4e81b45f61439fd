#include <algorithm>
#include <array>

#include "simulation/served_run.h"

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;
using Kind = Fault::Kind;

constexpr int kMostServers = 3;
constexpr auto* kSgd = "sgd:lr=1";
// Codecs that lose nothing for good: what they leave out waits in a residual.
constexpr std::array kCodecs{"3lc:s=1.75", "3lc", "sbc", "fp32"};
// Codecs without residuals; those of gradients also draw random numbers.
constexpr std::array kLosingPush{"bf16", "qsgd"};
constexpr std::array kLosingPull{"bf16", "natural"};
// Long enough for two parts, and for three.
constexpr std::array<std::size_t, 2> kLongest{17'000, 33'000};

// A worker has no result to disagree about, and leaves early where its plan says so.
std::vector<Fault> draw_served_faults(Dice& dice, Dice& calls, const Plan& job) {
  std::vector<Fault> faults = draw_faults(dice, calls, job);
  for (Fault& fault : faults) {
    if (fault.kind == Kind::kDisagree) fault.kind = Kind::kKill;
    if (fault.kind == Kind::kLeave) fault.kind = Kind::kAbort;
  }
  return faults;
}

void draw_options(Dice& dice, ServedPlan& plan) {
  ServerOptions& options = plan.options;
  options.servers = dice.between(1, std::min(kMostServers, plan.job.world - 2));
  options.push = dice.pick(kCodecs);
  options.pull = dice.pick(kCodecs);
  if (dice.one_in(4)) options.staleness = 1 + dice.below(3);
  if (dice.one_in(4)) options.backup = dice.between(1, plan.workers() - 1);
  constexpr std::array<std::uint64_t, 3> kLags{1, 2, 16};
  options.max_lag = dice.pick(kLags);
  if (dice.one_in(2)) options.on_worker_loss = WorkerLoss::kDrop;
  options.min_workers = dice.one_in(2) ? 1 : dice.between(1, plan.workers());
}

// In messages that take a small part of the deadline, with so small a window.
void lengthen(Dice& dice, ServedPlan& plan) {
  const Plan& job = plan.job;
  const double round_trip = 3 * std::chrono::duration<double>(job.path.least + job.path.jitter).count();
  const std::size_t longest = kLongest[plan.options.servers == 2 && dice.one_in(3) ? 1 : 0];
  const double windows = static_cast<double>(4 * longest) / static_cast<double>(job.buffer);
  if (windows * round_trip < std::chrono::duration<double>(job.timeout).count() / 16) plan.longest = longest;
}

// A third of the seeds have what the first ones did not.
void draw_more(ServedPlan& plan) {
  Dice dice(plan.job.seed, 13);
  if (!dice.one_in(3)) return;
  if (dice.one_in(2)) plan.options.push = dice.pick(kLosingPush);
  if (dice.one_in(2)) plan.options.pull = dice.pick(kLosingPull);
  if (plan.options.servers > 1 && dice.one_in(2)) lengthen(dice, plan);
}

// Half of the runs with Adam have its rule, for what is sent after the first step. Where workers may be
// stale, rows have no scales, and steps are not those of a run without faults. (In this stream the seeds of
// faults that were found before have no rule, as then.)
void draw_rules(ServedPlan& plan) {
  if (plan.optimizer == kSgd || plan.options.staleness > 0 || !Dice(plan.job.seed, 124).one_in(2)) return;
  plan.options.push = "step<1: fp32, rest 3lc";
  plan.options.rules_of = plan.optimizer;
}

// A disk lies in the first start alone: later it could bring back steps of an abandoned one.
void draw_disk_faults(ServedPlan& plan) {
  Dice dice(plan.job.seed, 124);
  plan.disk_faults.resize(plan.faults.size());
  for (std::size_t start = 0; start + 1 < plan.faults.size(); ++start) {
    if (!dice.one_in(2)) continue;
    DiskFault& fault = plan.disk_faults[start];
    fault.rank = static_cast<int>(dice.below(static_cast<std::uint64_t>(plan.job.world)));
    fault.from = dice.below(3);
    fault.count = 1 + dice.below(3);
    fault.no_room = static_cast<NoRoom>(dice.between(start == 0 ? 0 : 1, 3));
    if (fault.no_room != NoRoom::kNowhere) continue;
    plan.faults[start].push_back({.kind = Kind::kPowerOff,
                                  .rank = fault.rank,
                                  .step = std::min(plan.every * (1 + fault.from), plan.job.steps - 1),
                                  .point = static_cast<Fault::Point>(dice.below(3)),
                                  .delay = dice.time_between(1ns, plan.job.pause + 10ms)});
  }
}

}  // namespace

bool loses(const std::string& codec) {
  const auto channel = *make_channel(codec);
  return !channel->any(&CodecInfo::lossless) && !channel->any(&CodecInfo::error_feedback);
}

std::string DiskFault::text() const {
  constexpr std::array places{"lies", "has no room", "has no room when it flushes",
                              "has no room when it closes"};
  return "the disk of rank " + std::to_string(rank) + " " + places[static_cast<std::size_t>(no_room)] +
         " for " + std::to_string(count) + " snapshots after " + std::to_string(from);
}

std::string ServedPlan::text() const {
  std::string told = job.text() + "\n  ranks below " + std::to_string(options.servers) + " serve with " +
                     optimizer + ", push " + options.push + ", pull " + options.pull;
  if (!options.rules_of.empty()) told += ", by its rule";
  if (options.backup > 0) told += ", backup " + std::to_string(options.backup);
  if (options.staleness > 0) told += ", staleness " + std::to_string(options.staleness);
  if (drops()) told += ", lost workers are dropped down to " + std::to_string(options.min_workers);
  if (longest != ServedPlan{}.longest) told += ", a tensor of " + std::to_string(longest);
  told += ", max_lag " + std::to_string(options.max_lag) + "; workers close after";
  for (const std::uint64_t each : steps) told += " " + std::to_string(each);
  told += " steps";
  if (every > 0) told += "; snapshots every " + std::to_string(every) + " steps";
  for (std::size_t start = 0; start < faults.size(); ++start) {
    if (start > 0 && (!faults[start].empty() || disk_faults[start].count > 0))
      told += "\n  after start " + std::to_string(start + 1) + ":";
    for (const Fault& fault : faults[start]) told += "\n  " + fault.text();
    if (disk_faults[start].count > 0) told += "\n  " + disk_faults[start].text();
  }
  return told;
}

ServedPlan draw_served(std::uint64_t seed, int world) {
  Dice dice(seed, 10);
  Dice calls(seed, 11);
  ServedPlan plan;
  Plan& job = plan.job;
  job.seed = seed;
  job.world = world != 0 ? world : dice.between(3, 6);
  job.spec = "a parameter server";
  job.steps = 2 + dice.below(6);
  draw_network(dice, job);
  draw_options(dice, plan);
  plan.optimizer = dice.one_in(4) ? "adam:lr=0.01" : kSgd;
  plan.steps.assign(static_cast<std::size_t>(plan.workers()), job.steps);
  if (dice.one_in(4)) plan.steps[dice.below(plan.steps.size())] = 1 + dice.below(job.steps);
  plan.is_eager = dice.one_in(2);
  if (dice.one_in(2)) plan.every = 1 + dice.below(3);
  plan.writing = dice.time_between(100us, 100ms);
  plan.faults.push_back(draw_served_faults(dice, calls, job));
  if (plan.every > 0) {
    plan.faults.push_back(draw_served_faults(dice, calls, job));
    plan.faults.emplace_back();
  }
  draw_more(plan);
  draw_rules(plan);
  draw_disk_faults(plan);
  return plan;
}

ServedPlan undisturbed(const ServedPlan& plan, std::uint64_t steps) {
  ServedPlan calm = plan;
  calm.job = undisturbed(plan.job);
  calm.job.steps = steps;
  calm.steps.assign(calm.steps.size(), steps);
  calm.options.backup = 0;
  calm.options.staleness = 0;
  calm.options.max_lag = 16;
  calm.options.on_worker_loss = WorkerLoss::kEnd;
  calm.options.min_workers = 1;
  calm.every = 0;
  calm.faults.assign(1, {});
  calm.disk_faults.assign(1, {});
  return calm;
}

}  // namespace deltawire::simulation
