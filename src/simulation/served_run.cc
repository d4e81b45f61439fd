#include "simulation/served_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <utility>

namespace deltawire::simulation {
namespace {

constexpr std::uint64_t kMostSteps = 8;

std::vector<ServedPart> parts_of(const ServedPlan& plan) {
  Gradient model = gradient(0, 0, plan.longest);
  return *serve_parts(named(model), plan.options.servers);
}

bool same_bits(std::span<const float> one, std::span<const float> other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size_bytes()) == 0;
}

}  // namespace

const std::vector<ServedStep>& ServedRun::reference_of(const ServedPlan& plan) {
  static std::map<std::string, std::unique_ptr<ServedRun>> formed;
  static Trace silent(false);
  const std::string key = std::to_string(plan.longest) + " " + plan.options.push + " " + plan.options.pull +
                          " " + plan.optimizer + plan.options.rules_of + " " +
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
      parts_(parts_of(plan)),
      trace_(trace),
      reference_(reference),
      keeps_residual_(static_cast<std::size_t>(plan.workers()), true),
      steps_(kMostSteps + 1),
      snapshots_(plan_) {
  for (ServedStep& step : steps_) step.sent.resize(keeps_residual_.size());
}

std::string ServedRun::run() {
  for (std::size_t at = 0; at < plan_.faults.size() && !has_ended_; ++at) {
    if (at > 0) {
      if (std::string broken = go_on(); !broken.empty()) return broken;
    }
    if (has_ended_) break;
    if (std::string broken = start(at); !broken.empty()) return broken;
  }
  return {};
}

std::string ServedRun::start(std::size_t at) {
  const std::vector<Fault>& faults = plan_.faults[at];
  if (resumed_at_ == 0) is_exact_ = plan_.options.backup == 0;
  if (plan_.drops() && !faults.empty()) is_exact_ = false;
  endings_.assign(static_cast<std::size_t>(plan_.job.world), {});
  Plan plan = plan_.job;
  plan.faults = faults;
  const Play play{[this](Job& job, int rank) { run_served_rank(*this, job, rank); },
                  [this](Job& job) { return broken_promise(*this, job); }};
  Job job(plan, trace_, play);
  snapshots_.begin(at);
  std::string broken;
  {
    const Disks::Use disks = snapshots_.use(job);
    broken = job.run();
  }
  if (std::string lost = snapshots_.end(job); broken.empty()) broken = std::move(lost);
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

std::string ServedRun::go_on() {
  std::uint64_t made = kMostSteps;
  std::uint64_t most = 0;
  for (int rank = 0; rank < plan_.options.servers; ++rank) {
    made = std::min(made, ending(rank).version);
    most = std::max(most, ending(rank).version);
  }
  const std::uint64_t missed = snapshots_.missed_until(made);
  const auto step = snapshots_.newest_common_step();
  if (!step) {
    has_ended_ = true;
    return snapshots_.has_lied() ? "" : "the servers have no snapshot of the same step";
  }
  // A server that is ahead may have dropped the last one before those that another had no room for; but
  // never the one from which this start went on.
  const bool goes_back = *step == resumed_at_ && (missed > 1 || (missed == 1 && most > made));
  if (made > *step + plan_.every * (1 + missed) && !goes_back && !snapshots_.has_lied()) {
    return "they go on from step " + std::to_string(*step) + ", although all servers had made " +
           std::to_string(made) + " and write one every " + std::to_string(plan_.every);
  }
  forget_after(*step);
  for (std::size_t worker = 0; worker < keeps_residual_.size(); ++worker) {
    const bool has_saved = snapshots_.has(plan_.options.servers + static_cast<int>(worker), *step);
    keeps_residual_[worker] = *step == 0 || (keeps_residual_[worker] && has_saved);
    is_exact_ = is_exact_ && keeps_residual_[worker];
  }
  resumed_at_ = *step;
  return {};
}

void ServedRun::forget_after(std::uint64_t step) {
  for (std::uint64_t at = step; at < steps_.size(); ++at) {
    ServedStep& later = steps_[at];
    if (at > step) later.view.clear();
    later.change.clear();
    later.sent.assign(keeps_residual_.size(), {});
  }
}

std::vector<float>& ServedRun::of(Gradient& known, const ServedPart& part) const {
  known.resize(std::max(known.size(), part.tensor + 1));
  std::vector<float>& tensor = known[part.tensor];
  if (tensor.empty()) {
    const ServedPart& last =
        *std::ranges::find(parts_.rbegin(), parts_.rend(), part.tensor, &ServedPart::tensor);
    tensor.assign(last.first + last.count, std::numeric_limits<float>::quiet_NaN());
  }
  return tensor;
}

void ServedRun::see(Job& job, int rank, std::uint64_t version, const ServedPart& part,
                    std::span<const float> view) {
  if (job.log(rank).is_dead) return;
  const std::string what = "after " + std::to_string(version) + " steps tensor " +
                           std::to_string(part.tensor) + " from element " + std::to_string(part.first) +
                           " on";
  const std::span seen = std::span(of(steps_[version].view, part)).subspan(part.first, part.count);
  if (std::isnan(seen.front())) std::ranges::copy(view, seen.begin());
  if (!same_bits(seen, view)) job.violate(rank, what + " is not what another rank has");
  if (reference_ == nullptr || !is_exact_) return;
  const Gradient& wanted = (*reference_)[version].view;
  if (wanted.size() <= part.tensor ||
      !same_bits(std::span(wanted[part.tensor]).subspan(part.first, part.count), view)) {
    job.violate(rank, what + " is not that of an undisturbed run");
  }
}

void ServedRun::change(Job& job, int rank, std::uint64_t step, const ServedPart& part,
                       std::span<const float> change) {
  if (job.log(rank).is_dead) return;
  std::vector<float>& known = of(steps_[step].change, part);
  std::ranges::copy(change, known.begin() + static_cast<std::ptrdiff_t>(part.first));
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

}  // namespace deltawire::simulation
