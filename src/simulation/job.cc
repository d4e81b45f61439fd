#include "simulation/job.h"

#include <utility>

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;
using Kind = Fault::Kind;

constexpr std::uint64_t kMostEvents = 3'000'000;
constexpr std::size_t kMostMeshes = 3;
// A segment that was lost while a path was down is sent again up to so much later.
constexpr Clock::duration kRepair = 700ms;

}  // namespace

Job::Job(const Plan& plan, Trace& trace) : Job(plan, trace, {run_rank, broken_promise}) {}

Job::Job(const Plan& plan, Trace& trace, Play play)
    : plan_(plan),
      trace_(trace),
      play_(std::move(play)),
      scheduler_(plan.seed, plan.latencies, trace),
      network_(plan.seed, scheduler_, trace),
      logs_(static_cast<std::size_t>(plan.world)),
      triggered_(plan.faults.size()),
      blames_(1),
      links_(network_.connect(plan.world, plan.path, plan.buffer)) {}

std::string Job::run() {
  for (int rank = 0; rank < plan_.world; ++rank) {
    scheduler_.start_on(rank, [this, rank] { play_.run_rank(*this, rank); });
  }
  std::string stuck = scheduler_.run(kMostEvents);
  if (!violation_.empty()) return violation_;
  if (!stuck.empty()) return stuck;
  if (const std::size_t open = network_.open_ends(); open > 0) {
    return std::to_string(open) + " ends of streams are still open";
  }
  return play_.broken_promise(*this);
}

void Job::violate(int rank, const std::string& text) {
  if (log(rank).is_dead) return;
  note("VIOLATION by rank " + std::to_string(rank) + ": " + text);
  if (violation_.empty()) violation_ = "rank " + std::to_string(rank) + ": " + text;
}

Mishap Job::come_to(int rank, std::uint64_t step, Fault::Point point) {
  Mishap mishap;
  for (std::size_t i = 0; i < plan_.faults.size(); ++i) {
    const Fault& fault = plan_.faults[i];
    if (triggered_[i] || fault.rank != rank || fault.step != step || fault.point != point) continue;
    triggered_[i] = true;
    switch (fault.kind) {
      case Kind::kBusy: mishap.busy += fault.lasts; break;
      case Kind::kAbort: mishap.aborts = true; break;
      case Kind::kLeave: mishap.leaves = true; break;
      case Kind::kDisagree: mishap.disagrees = true; break;
      default:
        if (fault.calls > 0) mishap.busy += fault.delay;
        begin(fault);
        continue;
    }
    happen(fault);
  }
  return mishap;
}

void Job::begin(const Fault& fault) {
  if (fault.calls == 0) return scheduler_.after(fault.delay, [this, &fault] { happen(fault); });
  // It is late: the others' messages are there when it goes on.
  blames_.back().guilty |= 1U << fault.rank;
  blames_.back().delay += fault.delay;
  scheduler_.after(fault.delay, [this, &fault] {
    scheduler_.interrupt(fault.rank, fault.calls, [this, &fault] { happen(fault); });
  });
}

void Job::happen(const Fault& fault) {
  if (log(fault.rank).is_dead) return;
  note(fault.text());
  ++happened_;
  Blame& blame = blames_.back();
  blame.guilty |= 1U << fault.rank;
  switch (fault.kind) {
    case Kind::kKill:
    case Kind::kPowerOff: return kill(fault);
    case Kind::kFreeze: return freeze(fault);
    case Kind::kBusy: return delay(fault.lasts);
    case Kind::kCut:
    case Kind::kCutBoth:
    case Kind::kSplit: return cut(fault);
    case Kind::kSlow:
      network_.path(fault.rank, fault.peer).least += fault.lasts;
      blame.guilty |= 1U << fault.peer;
      blame.silences = blame.slows = blame.is_fatal = true;
      return;
    case Kind::kReset:
    case Kind::kHalfReset:
      network_.reset(fault.rank, fault.peer, fault.stream, fault.kind == Kind::kReset);
      blame.guilty |= 1U << fault.peer;
      blame.silences = blame.silences || fault.stream == StreamKind::kControl;
      blame.is_fatal = true;
      return;
    case Kind::kFlip:
      network_.flip(fault.rank, fault.peer, fault.stream, fault.bytes);
      blame.victims |= 1U << fault.peer;
      blame.silences = blame.silences || fault.stream == StreamKind::kControl;
      blame.is_fatal = true;
      return;
    case Kind::kDisagree:
      // Of two that disagree with one, the one is odd.
      if (std::exchange(blame.disagrees, true)) blame.guilty = ~0U;
      blame.is_fatal = true;
      return;
    case Kind::kLeave: blame.leaves = blame.is_fatal = true; return;
    case Kind::kAbort: blame.is_fatal = true; return;
  }
}

void Job::delay(Clock::duration time) {
  Blame& blame = blames_.back();
  blame.delay += time;
  blame.delays_end.push_back(scheduler_.read() + time);
}

// Its fibers run to their ends when nobody looks any more (bury_the_dead).
void Job::kill(const Fault& fault) {
  blames_.back().is_fatal = true;
  log(fault.rank).is_dead = true;
  scheduler_.freeze(fault.rank);
  if (fault.kind == Kind::kKill) {
    network_.close_all(fault.rank);
  } else {
    log(fault.rank).has_lost_power = true;
    blames_.back().stand_still(scheduler_.read());
    blames_.back().silences = blames_.back().cuts = true;
    cut_off(network_, fault.rank);
  }
  bury_the_dead();
}

void Job::freeze(const Fault& fault) {
  RankLog& own = log(fault.rank);
  delay(fault.lasts);
  blames_.back().stand_still(scheduler_.read());
  ++blames_.back().freezes;
  if (scheduler_.is_frozen(fault.rank)) return;
  own.frozen_since = scheduler_.read();
  scheduler_.freeze(fault.rank);
  scheduler_.after(fault.lasts, [this, rank = fault.rank] {
    if (log(rank).is_dead) return;
    note("rank " + std::to_string(rank) + " wakes up");
    blames_.back().woken_at = scheduler_.read();
    log(rank).frozen = frozen(rank);
    log(rank).frozen_since = kNever;
    scheduler_.thaw(rank);
  });
}

Clock::duration Job::frozen(int rank) {
  const RankLog& own = log(rank);
  return own.frozen + (own.frozen_since == kNever ? Clock::duration{} : scheduler_.read() - own.frozen_since);
}

void Job::cut(const Fault& fault) {
  Blame& blame = blames_.back();
  delay(fault.lasts + kRepair);
  blame.silences = blame.cuts = true;
  blame.heard_until = std::max(blame.heard_until, scheduler_.read() + fault.lasts + kRepair);
  const auto is_cut = [&fault](int from, int to) {
    if (fault.kind == Kind::kSplit) return ((fault.group >> from ^ fault.group >> to) & 1U) != 0;
    if (from == fault.rank && to == fault.peer) return true;
    return fault.kind == Kind::kCutBoth && from == fault.peer && to == fault.rank;
  };
  for (int from = 0; from < plan_.world; ++from) {
    for (int to = 0; to < plan_.world; ++to) {
      if (from == to || !is_cut(from, to)) continue;
      blame.guilty |= 1U << from | 1U << to;
      network_.cut(from, to);
      scheduler_.after(fault.lasts, [this, from, to] {
        if (!log(from).is_dead && !log(to).is_dead) network_.heal(from, to);
      });
    }
  }
}

// Ranks whose process has died can't meet anybody; nor do those that have all they wanted.
bool Job::meet_again(int rank) {
  const std::size_t mesh = blames_.size();
  ++absent_;
  const auto dead = std::ranges::count_if(logs_, &RankLog::is_dead);
  if (dead > 0) scheduler_.notify(&absent_);
  const auto anyone_dead = [this] { return std::ranges::any_of(logs_, &RankLog::is_dead); };
  const auto gone_on = [&] { return blames_.size() > mesh; };
  if (absent_ == plan_.world && !anyone_dead()) {
    const bool all_done =
        std::ranges::all_of(logs_, [this](const RankLog& log) { return log.next_step == plan_.steps; });
    meets_again_ = !all_done && mesh < kMostMeshes;
    absent_ = 0;
    note(meets_again_ ? "they meet again" : "they part");
    Blame next;
    for (int each = 0; each < plan_.world; ++each) {
      if (!scheduler_.is_frozen(each)) continue;
      next.guilty |= 1U << each;
      next.silences = next.is_fatal = true;
    }
    blames_.push_back(next);
    if (meets_again_) links_ = network_.connect(plan_.world, plan_.path, plan_.buffer);
    scheduler_.notify(&absent_);
    return meets_again_;
  }
  while (!gone_on() && !anyone_dead()) scheduler_.wait(&absent_, scheduler_.read() + 1s);
  return gone_on() && meets_again_ && !log(rank).is_dead;
}

void Job::end(int rank) {
  if (!log(rank).is_dead) ++ended_;
  bury_the_dead();
}

void Job::bury_the_dead() {
  if (ended_ + std::ranges::count_if(logs_, &RankLog::is_dead) < plan_.world) return;
  for (int rank = 0; rank < plan_.world; ++rank) {
    if (!log(rank).is_dead || !scheduler_.is_frozen(rank)) continue;
    network_.close_all(rank);
    scheduler_.thaw(rank);
  }
}

}  // namespace deltawire::simulation
