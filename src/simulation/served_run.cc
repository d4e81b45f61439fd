#include "simulation/served_run.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "deltawire/snapshot.h"
#include "simulation/served_promises.h"
#include "simulation/served_rank.h"

namespace deltawire::simulation {
namespace {

constexpr std::uint64_t kMostSteps = 8;

bool same_bits(std::span<const float> one, std::span<const float> other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size_bytes()) == 0;
}

}  // namespace

const std::vector<ServedStep>& ServedRun::reference_of(const ServedPlan& plan) {
  static std::map<std::string, std::unique_ptr<ServedRun>> formed;
  static Trace silent(false);
  const std::string key = plan.options.push + " " + plan.options.pull + " " + plan.optimizer + " " +
                          std::to_string(plan.options.servers) + " " + std::to_string(plan.job.world);
  std::unique_ptr<ServedRun>& reference = formed[key];
  if (reference == nullptr) {
    reference = std::make_unique<ServedRun>(undisturbed(plan, kMostSteps), silent, nullptr);
    // One that breaks a promise leaves steps unseen, and no run is like it.
    (void)reference->run();
  }
  return reference->steps();
}

ServedRun::ServedRun(const ServedPlan& plan, Trace& trace, const std::vector<ServedStep>* reference)
    : plan_(plan),
      trace_(trace),
      reference_(reference),
      keeps_residual_(static_cast<std::size_t>(plan.workers()), true),
      steps_(kMostSteps + 1),
      disks_(static_cast<std::size_t>(plan.job.world)) {
  for (ServedStep& step : steps_) step.sent.resize(keeps_residual_.size());
}

std::string ServedRun::run() {
  for (std::size_t at = 0; at < plan_.faults.size() && !has_ended_; ++at) {
    if (at > 0) {
      if (std::string broken = go_on(); !broken.empty()) return broken;
    }
    if (std::string broken = start(plan_.faults[at]); !broken.empty()) return broken;
  }
  return {};
}

std::string ServedRun::start(const std::vector<Fault>& faults) {
  if (resumed_at_ == 0) is_exact_ = plan_.options.backup == 0;
  if (plan_.drops() && !faults.empty()) is_exact_ = false;
  endings_.assign(static_cast<std::size_t>(plan_.job.world), {});
  Plan plan = plan_.job;
  plan.faults = faults;
  const Play play{[this](Job& job, int rank) { run_served_rank(*this, job, rank); },
                  [this](Job& job) { return broken_promise(*this, job); }};
  Job job(plan, trace_, play);
  std::string broken = job.run();
  events_ += job.events();
  happened_ += job.happened();
  has_ended_ = true;
  for (int rank = 0; rank < plan.world; ++rank) {
    const RankLog& log = job.log(rank);
    if (rank < plan_.options.servers) served_ += log.next_step - std::min(log.next_step, resumed_at_);
    for (const Ending& ending : log.endings) errors_ += ending.error ? 1U : 0U;
    // A lost worker does not end the run, where workers may be lost.
    const bool must_close = rank < plan_.options.servers || !plan_.drops();
    has_ended_ = has_ended_ && (ending(rank).is_closed || !must_close);
  }
  return broken;
}

// As the ranks agree when they start again (docs/guides/parameter-server.md, "Snapshots").
std::optional<std::uint64_t> ServedRun::newest_common_step() const {
  const auto servers = static_cast<std::size_t>(plan_.options.servers);
  const auto all_have = [&](std::uint64_t step) {
    return std::ranges::all_of(disks_.begin(), disks_.begin() + plan_.options.servers,
                               [step](const Disk& disk) { return disk.contains(step); });
  };
  bool has_any = false;
  std::optional<std::uint64_t> newest;
  for (std::size_t server = 0; server < servers; ++server) {
    for (const auto& [step, state] : disks_[server]) {
      has_any = has_any || step > 0;
      if (all_have(step)) newest = std::max(newest.value_or(0), step);
    }
  }
  return newest || has_any ? newest : 0;
}

std::string ServedRun::go_on() {
  const auto step = newest_common_step();
  if (!step) return "the servers have no snapshot of the same step";
  std::uint64_t made = kMostSteps;
  for (int rank = 0; rank < plan_.options.servers; ++rank) made = std::min(made, ending(rank).version);
  if (made > *step + plan_.every) {
    return "they go on from step " + std::to_string(*step) + ", although all servers had made " +
           std::to_string(made) + " and write one every " + std::to_string(plan_.every);
  }
  forget_after(*step);
  for (std::size_t worker = 0; worker < keeps_residual_.size(); ++worker) {
    const Disk& disk = disks_[static_cast<std::size_t>(plan_.options.servers) + worker];
    keeps_residual_[worker] = *step == 0 || (keeps_residual_[worker] && disk.contains(*step));
    is_exact_ = is_exact_ && keeps_residual_[worker];
  }
  resumed_at_ = *step;
  return {};
}

void ServedRun::forget_after(std::uint64_t step) {
  for (Disk& disk : disks_) disk.erase(disk.upper_bound(step), disk.end());
  for (std::uint64_t at = step; at < steps_.size(); ++at) {
    ServedStep& later = steps_[at];
    if (at > step) later.view.clear();
    later.change.clear();
    later.sent.assign(keeps_residual_.size(), {});
  }
}

void ServedRun::see(Job& job, int rank, std::uint64_t version, std::size_t tensor,
                    std::span<const float> view) {
  if (job.log(rank).is_dead) return;
  const std::string what = "after " + std::to_string(version) + " steps tensor " + std::to_string(tensor);
  Gradient& seen = steps_[version].view;
  seen.resize(std::max(seen.size(), tensor + 1));
  if (seen[tensor].empty()) seen[tensor].assign(view.begin(), view.end());
  if (!same_bits(seen[tensor], view)) job.violate(rank, what + " is not what another rank has");
  if (reference_ == nullptr || !is_exact_) return;
  const Gradient& wanted = (*reference_)[version].view;
  if (wanted.size() <= tensor || !same_bits(wanted[tensor], view)) {
    job.violate(rank, what + " is not that of an undisturbed run");
  }
}

void ServedRun::change(Job& job, int rank, std::uint64_t step, std::size_t tensor,
                       std::vector<float> change) {
  if (job.log(rank).is_dead) return;
  Gradient& changes = steps_[step].change;
  changes.resize(std::max(changes.size(), tensor + 1));
  changes[tensor] = std::move(change);
}

void ServedRun::sent(Job& job, int rank, std::uint64_t step, Gradient sent) {
  if (job.log(rank).is_dead) return;
  steps_[step].sent[static_cast<std::size_t>(rank - plan_.options.servers)] = std::move(sent);
}

const Gradient* ServedRun::sent_by(int worker, std::uint64_t step) const {
  const auto at = static_cast<std::size_t>(worker);
  if (const Gradient& own = steps_[step].sent[at]; !own.empty()) return &own;
  if (reference_ == nullptr || plan_.options.backup > 0 || !keeps_residual_[at]) return nullptr;
  const Gradient& undisturbed = (*reference_)[step].sent[at];
  return undisturbed.empty() ? nullptr : &undisturbed;
}

void ServedRun::save(Job& job, int rank, std::uint64_t step, std::vector<std::byte> state) {
  if (job.log(rank).is_dead) return;
  Disk& disk = disks_[static_cast<std::size_t>(rank)];
  disk[step] = std::move(state);
  while (disk.size() > static_cast<std::size_t>(SnapshotPlace{}.kept)) disk.erase(disk.begin());
}

const std::vector<std::byte>* ServedRun::saved(int rank) const {
  const Disk& disk = disks_[static_cast<std::size_t>(rank)];
  const auto found = disk.find(resumed_at_);
  return found == disk.end() ? nullptr : &found->second;
}

}  // namespace deltawire::simulation
