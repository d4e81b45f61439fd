// What happens to an elastic session's processes and paths.
#include <algorithm>
#include <utility>
#include <vector>

#include "simulation/elastic_run.h"

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;
using Kind = ElasticFault::Kind;

}  // namespace

void ElasticRun::happen(const ElasticFault& fault) {
  switch (fault.kind) {
    case Kind::kJoin:
    case Kind::kMisfit:
      if (is_buried_) return;
      note(fault.text());
      ++happened_;
      return start(fault.kind == Kind::kMisfit, {});
    case Kind::kFreezeHost: return arm_listening(fault.lasts);
    default: break;
  }
  if (fault.process >= static_cast<int>(lives_.size())) return;
  ElasticLife& own = at(fault.process);
  if (own.is_dead || own.is_over) return;
  note(fault.text());
  ++happened_;
  switch (fault.kind) {
    case Kind::kKill:
      if (fault.calls == 0) return kill(own, false);
      return scheduler_.interrupt(own.process, fault.calls, [this, &own] {
        if (!own.is_dead && !own.is_over) kill(own, false);
      });
    case Kind::kPowerOff: return kill(own, true);
    case Kind::kFreeze:
      if (fault.calls == 0) return freeze(own, fault.lasts);
      return scheduler_.interrupt(own.process, fault.calls,
                                  [this, &own, &fault] { freeze(own, fault.lasts); });
    case Kind::kBusy: own.busy = fault.lasts; return;
    case Kind::kLeave: own.shall_leave = true; return;
    case Kind::kAbort:
      scheduler_.start_on(own.process, [session = own.session] {
        if (session != nullptr) session->abort("the program has had enough");
      });
      own.shall_leave = true;
      return;
    default: return disturb_paths(fault);
  }
}

void ElasticRun::disturb_paths(const ElasticFault& fault) {
  if (fault.kind == Kind::kSlow) {
    Path& path = network_.path(fault.process, fault.peer);
    path.least += 150ms;
    return scheduler_.after(fault.lasts, [&path] { path.least -= 150ms; });
  }
  std::vector<std::pair<int, int>> pairs{{fault.process, fault.peer}};
  if (fault.kind == Kind::kSplit) {
    pairs.clear();
    const auto is_in = [&fault](int process) {
      return (fault.group >> static_cast<unsigned>(process) & 1U) != 0;
    };
    for (int from = 0; from < Sockets::kMachines; ++from) {
      for (int to = 0; to < Sockets::kMachines; ++to) {
        if (is_in(from) != is_in(to)) pairs.emplace_back(from, to);
      }
    }
  }
  for (const auto& [from, to] : pairs) network_.cut(from, to);
  scheduler_.after(fault.lasts, [this, pairs] {
    for (const auto& [from, to] : pairs) {
      if (!has_lost_power(from) && !has_lost_power(to)) network_.heal(from, to);
    }
  });
}

// A machine without power hears nothing any more.
bool ElasticRun::has_lost_power(int process) const {
  return process < static_cast<int>(lives_.size()) &&
         lives_[static_cast<std::size_t>(process)]->has_lost_power;
}

void ElasticRun::kill(ElasticLife& own, bool loses_power) {
  own.is_dead = true;
  own.has_lost_power = loses_power;
  scheduler_.freeze(own.process);
  if (loses_power) {
    for (int other = 0; other < Sockets::kMachines; ++other) {
      network_.cut(own.process, other);
      network_.cut(other, own.process);
    }
  } else {
    sockets_.close_all(own.process);
  }
  bury_the_dead();
}

void ElasticRun::freeze(ElasticLife& own, Clock::duration time) {
  if (own.is_dead || own.is_over || scheduler_.is_frozen(own.process)) return;
  own.has_been_frozen = true;
  own.frozen += time;
  scheduler_.freeze(own.process);
  scheduler_.after(time, [this, &own] {
    if (own.is_dead) return;
    note("process " + std::to_string(own.process) + " wakes up");
    scheduler_.thaw(own.process);
  });
}

// The next one that listens, and was in an epoch before, has just decided on a view.
void ElasticRun::arm_listening(Clock::duration time) {
  sockets_.set_on_listen([this, time](int process) {
    if (!at(process).has_met) return;
    sockets_.set_on_listen({});
    note("process " + std::to_string(process) + " freezes in a meeting, for " +
         std::to_string(std::chrono::duration<double>(time).count()) + " s");
    ++happened_;
    scheduler_.interrupt(process, 1, [this, process, time] { freeze(at(process), time); });
  });
}

// When all others have ended, the threads of the dead run to their ends, alone.
void ElasticRun::bury_the_dead() {
  const auto goes_on = [](const auto& each) { return !each->is_dead && !each->is_over; };
  if (is_buried_ || std::ranges::any_of(lives_, goes_on)) return;
  is_buried_ = true;
  for (const auto& each : lives_) {
    if (!each->is_dead) continue;
    for (int other = 0; other < Sockets::kMachines; ++other) {
      if (other == each->process) continue;
      network_.cut(each->process, other);
      network_.cut(other, each->process);
    }
    scheduler_.thaw(each->process);
    scheduler_.start_on(each->process, [session = each->session] {
      if (session != nullptr) session->abort("it is dead");
    });
  }
}

void ElasticRun::end_late() {
  std::string late;
  for (const auto& each : lives_) {
    if (each->is_dead || each->is_over) continue;
    late += " " + std::to_string(each->process);
    each->is_dead = true;
  }
  if (late.empty()) return;
  breaks("processes" + late + " have not ended");
  bury_the_dead();
}

}  // namespace deltawire::simulation
