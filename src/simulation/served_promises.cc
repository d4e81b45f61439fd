#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "simulation/job.h"
#include "simulation/served_run.h"

namespace deltawire::simulation {
namespace {

// Of values below 0.5, in sums of a few of them.
constexpr double kRounding = 2e-6;

// bf16 rounds to eight bits, and natural up or down to a power of two.
double loss_of(const std::string& pull) {
  if (!loses(pull)) return 0;
  return pull == "bf16" ? 1.0 / 256 : 1;
}

std::span<const float> slice(const Gradient& tensors, const ServedPart& part) {
  if (tensors.size() <= part.tensor || tensors[part.tensor].empty()) return {};
  return std::span(tensors[part.tensor]).subspan(part.first, part.count);
}

class ServedPromises {
 public:
  ServedPromises(const ServedRun& run, Job& job)
      : run_(run),
        plan_(run.plan()),
        job_(job),
        blame_(job.blame()),
        may_lose_(loss_of(run.plan().options.pull)) {}

  std::string check() {
    for (int rank = 0; rank < plan_.job.world; ++rank) {
      if (!lives(rank)) continue;
      check_error(rank);
      check_end(rank);
      check_dropped(rank);
    }
    for (std::uint64_t step = run_.resumed_at(); step < run_.steps().size(); ++step) check_mass(step);
    return broken_;
  }

 private:
  bool lives(int rank) const { return !job_.logs()[static_cast<std::size_t>(rank)].is_dead; }
  bool serves(int rank) const { return rank < plan_.options.servers; }
  const ServedEnding& ending(int rank) const { return run_.endings()[static_cast<std::size_t>(rank)]; }
  Deadline failed_at(int rank) const {
    const std::vector<Ending>& endings = job_.logs()[static_cast<std::size_t>(rank)].endings;
    return endings.empty() ? Deadline{} : endings.back().failed_at;
  }
  void breaks(std::string promise) {
    if (broken_.empty()) broken_ = std::move(promise);
  }

  // Something happened to it, or it got damaged bytes.
  bool is_touched(int rank) const { return blame_.is_guilty(rank) || (blame_.victims >> rank & 1U) != 0; }
  bool may_be_in_flight(int rank, const Error& error) const;
  bool has_lost_workers_only() const;
  void check_error(int rank);
  void check_end(int rank);
  void check_dropped(int rank);
  void check_mass(std::uint64_t step);
  bool may_be_mean(std::uint64_t step, const ServedPart& part, std::span<const float> change) const;
  bool is_mean_of(const std::vector<std::span<const float>>& sent, std::span<const float> change) const;

  const ServedRun& run_;
  const ServedPlan& plan_;
  Job& job_;
  const Blame& blame_;
  const double may_lose_;  // the pulls' codec, of each value, where no residual keeps it
  std::string broken_;
};

// Whether the run goes on without all ranks that something happened to.
bool ServedPromises::has_lost_workers_only() const {
  int guilty = 0;
  for (int rank = 0; rank < plan_.job.world; ++rank) {
    if (!is_touched(rank)) continue;
    if (serves(rank)) return false;
    ++guilty;
  }
  // Who has closed pushes no more: then the others may be too few to end a step that has begun.
  const bool all_stay = std::ranges::count(plan_.steps, plan_.job.steps) == plan_.workers();
  return plan_.drops() && all_stay && plan_.workers() - guilty >= plan_.options.min_workers;
}

// Whether the rank's time was over just when what it waited for was at last on its way: what held it up is
// over, or the others go on without a lost worker.
bool ServedPromises::may_be_in_flight(int rank, const Error& error) const {
  if (error.code != ErrorCode::kTimeout) return false;
  const Deadline at = failed_at(rank);
  const auto is_soon_after = [&](Deadline since) { return at >= since && at < since + in_flight(job_); };
  if (std::ranges::any_of(blame_.delays_end, is_soon_after)) return true;
  for (int worker = plan_.options.servers; worker < plan_.job.world; ++worker) {
    const bool is_lost = plan_.drops() && is_touched(worker) && !ending(worker).is_closed;
    if (is_lost && worker != rank && is_soon_after(failed_at(worker))) return true;
  }
  return false;
}

// An error only where something has gone wrong, and it names a rank that had to do with it.
void ServedPromises::check_error(int rank) {
  for (const Ending& ending : job_.log(rank).endings) {
    if (!ending.error) continue;
    const std::string told = RankNames::plain().of(rank) + " fails (" + ending.error->text() + ")";
    const bool is_long = blame_.delay >= job_.plan().timeout / 2;
    if (!blame_.is_fatal && !is_long) breaks(told + " although nothing was wrong for so long");
    const int suspect = ending.error->suspect;
    const bool is_circle = told.find("in a circle") != std::string::npos;
    const bool is_guess = (is_circle && !blame_.cuts) || may_be_in_flight(rank, *ending.error);
    if (suspect != kNoSuspect && !is_guess && !blame_.is_guilty(suspect)) {
      breaks(told + " and blames " + RankNames::plain().of(suspect) + ", which is innocent");
    }
    if (has_lost_workers_only() && !is_touched(rank)) {
      breaks(told + " although the others go on without lost workers");
    }
  }
}

// A worker that closes has all steps that were made, and who closes has made those of all workers. (Servers
// that have lost all workers in the midst of a step may be one apart.)
void ServedPromises::check_end(int rank) {
  const ServedEnding& own = ending(rank);
  if (!own.is_closed) return;
  for (int server = 0; server < plan_.options.servers && !serves(rank); ++server) {
    const ServedEnding& its = ending(server);
    if (lives(server) && its.is_closed && its.version != own.version) {
      breaks(RankNames::plain().of(rank) + " has closed after " + std::to_string(own.version) + " steps, " +
             RankNames::plain().of(server) + " after " + std::to_string(its.version));
    }
  }
  const std::uint64_t least = *std::ranges::min_element(plan_.steps);
  if (own.version < least) {
    breaks(RankNames::plain().of(rank) + " has closed after " + std::to_string(own.version) + " steps of " +
           std::to_string(least));
  }
}

// Servers lose workers that something happened to, or that give up because of a server that is lost; and all
// the same ones, unless it is at the end.
void ServedPromises::check_dropped(int rank) {
  const ServedEnding& own = ending(rank);
  for (const DroppedWorker& lost : own.dropped) {
    const std::string told = RankNames::plain().of(rank) + " has dropped " +
                             RankNames::plain().of(lost.rank) + " (" + lost.why.text() + ")";
    if (!plan_.drops()) breaks(told + " unasked");
    const int suspect = lost.why.suspect == kNoSuspect ? lost.rank : lost.why.suspect;
    const bool is_innocent = !is_touched(lost.rank) && !is_touched(suspect);
    if (is_innocent && !may_be_in_flight(lost.rank, lost.why)) breaks(told + ", which is innocent");
    const std::uint64_t all_know = lost.step + plan_.options.staleness + 2;
    for (int server = 0; server < plan_.options.servers; ++server) {
      const ServedEnding& its = ending(server);
      const bool has_heard = std::min(own.version, its.version) >= all_know;
      if (!lives(server) || !own.is_closed || !its.is_closed || !has_heard) continue;
      if (std::ranges::count(its.dropped, lost.rank, &DroppedWorker::rank) == 0) {
        breaks(told + ", and " + RankNames::plain().of(server) + " has not");
      }
    }
  }
}

// A step has moved the master by the mean of what workers sent: by all that live and were in time, and by
// any of those that were lost in it.
void ServedPromises::check_mass(std::uint64_t step) {
  if (plan_.optimizer != "sgd:lr=1") return;
  for (const ServedPart& part : run_.parts()) {
    const std::span<const float> change = slice(run_.steps()[step].change, part);
    if (!change.empty() && !std::isnan(change.front()) && !may_be_mean(step, part, change)) {
      breaks("step " + std::to_string(step) + " has not moved tensor " + std::to_string(part.tensor) +
             " by the mean of what workers have sent");
    }
  }
}

bool ServedPromises::may_be_mean(std::uint64_t step, const ServedPart& part,
                                 std::span<const float> change) const {
  std::vector<std::span<const float>> counted;
  std::vector<std::span<const float>> uncertain;
  for (int worker = 0; worker < plan_.workers(); ++worker) {
    const Gradient* sent = run_.sent_by(worker, step);
    if (sent == nullptr) return true;  // nobody knows
    const bool is_known = sent == &run_.steps()[step].sent[static_cast<std::size_t>(worker)];
    const std::span<const float> values = slice(*sent, part);
    // What came too late counts later.
    const bool may_be_late = plan_.options.backup > 0 && std::ranges::all_of(values, [](float value) {
                               return std::abs(value) < kRounding;
                             });
    const bool is_lost = !is_known || (plan_.drops() && !ending(plan_.options.servers + worker).is_closed);
    (!is_lost && !may_be_late ? counted : uncertain).push_back(values);
  }
  for (unsigned chosen = 0; chosen < 1U << uncertain.size(); ++chosen) {
    auto all = counted;
    for (std::size_t i = 0; i < uncertain.size(); ++i) {
      if ((chosen >> i & 1U) != 0) all.push_back(uncertain[i]);
    }
    if (!all.empty() && is_mean_of(all, change)) return true;
  }
  return false;
}

bool ServedPromises::is_mean_of(const std::vector<std::span<const float>>& sent,
                                std::span<const float> change) const {
  for (std::size_t k = 0; k < change.size(); ++k) {
    double sum = 0;
    for (const std::span<const float> values : sent) sum += static_cast<double>(values[k]);
    const double mean = sum / static_cast<double>(sent.size());
    const double most = kRounding + may_lose_ * std::abs(mean);
    if (std::abs(static_cast<double>(change[k]) + mean) > most) return false;
  }
  return true;
}

}  // namespace

std::string broken_promise(const ServedRun& run, Job& job) {
  return ServedPromises(run, job).check();
}

}  // namespace deltawire::simulation
