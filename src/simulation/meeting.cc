#include "simulation/meeting.h"

#include <algorithm>
#include <array>
#include <utility>

#include "reduce/vote.h"

namespace deltawire::simulation {

namespace {

using namespace std::chrono_literals;
using Kind = MeetingFault::Kind;

constexpr std::uint64_t kMostEvents = 1'000'000;
constexpr int kMachines = 16;
constexpr std::uint16_t kPort = 29600;
// Whoever gives up may have to wait for a processor.
constexpr Clock::duration kWaiting = 500ms;
// Longer than any fault.
constexpr Clock::duration kVote = 1h;

Endpoint endpoint_of(int rank) {
  return {address_of(rank), kPort};
}

}  // namespace

Meeting::Meeting(const MeetingPlan& plan, Trace& trace)
    : plan_(plan),
      trace_(trace),
      scheduler_(plan.seed, plan.latencies, trace),
      network_(plan.seed, scheduler_, trace, kMachines, plan.path),
      sockets_(scheduler_, network_, plan.buffer),
      processes_(2 * std::size_t{kMachines}) {}

std::string Meeting::run() {
  for (int rank = 0; rank < plan_.world; ++rank) {
    start(rank, rank);
    scheduler_.freeze(rank);
    scheduler_.after(plan_.comes[static_cast<std::size_t>(rank)], [this, rank] { scheduler_.thaw(rank); });
  }
  for (const MeetingFault& fault : plan_.faults) schedule(fault);
  std::string stuck = scheduler_.run(kMostEvents);
  if (!broken_.empty()) return broken_;
  if (!stuck.empty()) return stuck;
  if (const std::size_t open = sockets_.open_ends(); open > 0) {
    return std::to_string(open) + " sockets are still open";
  }
  return check_all();
}

int Meeting::process_of(int rank) const {
  const int again = rank + static_cast<int>(processes_.size() / 2);
  return processes_[static_cast<std::size_t>(again)].is_started ? again : rank;
}

void Meeting::start(int rank, int process) {
  at(process).rank = rank;
  at(process).is_started = true;
  scheduler_.start_on(process, [this, process] { live(process); });
}

MeshOptions Meeting::options_of(int rank) const {
  MeshOptions options;
  options.rank = rank;
  options.world_size = plan_.world;
  if (plan_.has_rendezvous) {
    options.rendezvous = endpoint_of(0);
  } else {
    for (int each = 0; each < plan_.world; ++each) options.endpoints.push_back(endpoint_of(each));
  }
  options.token.fill(std::byte{7});
  options.encryption = plan_.encryption;
  options.settings = "direct(fp32)";
  options.connect_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(plan_.timeout);
  options.streams = plan_.streams;
  for (const MeetingFault& fault : plan_.faults) {
    if (fault.rank != rank) continue;
    if (fault.kind == Kind::kOtherToken) options.token.fill(std::byte{8});
    if (fault.kind == Kind::kOtherSpec) options.settings = "direct(int8)";
  }
  return options;
}

// The program of a rank: it connects, votes once, and leaves.
void Meeting::live(int process) {
  Process& own = at(process);
  const std::string name = "rank " + std::to_string(own.rank);
  const bool is_hidden = plan_.has_rendezvous && own.rank > 0;
  auto listener = listen_tcp(endpoint_of(own.rank).host, is_hidden ? std::uint16_t{0} : kPort);
  const Deadline begun = scheduler_.now();
  Status done;
  if (!listener) {
    done = forward_error(listener);
  } else {
    auto mesh = connect_tcp(*std::move(listener), options_of(own.rank));
    const Clock::duration took = scheduler_.now() - begun - own.frozen;
    if (took > plan_.timeout + kWaiting && !own.is_dead) {
      breaks(own.rank, "connect_tcp took " + seconds_text(took));
    }
    done = mesh ? Status{} : forward_error(mesh);
    own.has_met = mesh.has_value();
    if (mesh) {
      note(name + " has met the others");
      done = vote({.number = 0}, 0, **mesh, scheduler_.now() + kVote);
      if (!done) (*mesh)->abort(done.error());
    }
  }
  own.has_ended = true;
  if (!done && !own.is_dead) {
    note(name + " fails: " + done.error().message);
    own.error = done.error();
  }
  bury_the_dead();
}

void Meeting::schedule(const MeetingFault& fault) {
  const Clock::duration comes = plan_.comes[static_cast<std::size_t>(fault.rank)];
  scheduler_.after(comes + fault.at, [this, &fault] {
    const bool is_own =
        fault.kind == Kind::kKill || fault.kind == Kind::kRestart || fault.kind == Kind::kFreeze;
    if (!is_own || fault.calls == 0) return happen(fault);
    scheduler_.interrupt(process_of(fault.rank), fault.calls, [this, &fault] { happen(fault); });
  });
}

void Meeting::happen(const MeetingFault& fault) {
  const int process = process_of(fault.rank);
  Process& own = at(process);
  if (own.is_dead || own.has_ended) return;
  note(fault.text());
  ++happened_;
  switch (fault.kind) {
    case Kind::kKill:
    case Kind::kRestart: return kill(fault);
    case Kind::kFreeze:
      if (scheduler_.is_frozen(process)) return;
      own.frozen += fault.lasts;
      scheduler_.freeze(process);
      return scheduler_.after(fault.lasts, [this, process] {
        if (at(process).is_dead) return;
        note("rank " + std::to_string(at(process).rank) + " wakes up");
        scheduler_.thaw(process);
      });
    case Kind::kCut:
    case Kind::kCutBoth:
      network_.cut(fault.rank, fault.peer);
      if (fault.kind == Kind::kCutBoth) network_.cut(fault.peer, fault.rank);
      return scheduler_.after(fault.lasts, [this, &fault] {
        network_.heal(fault.rank, fault.peer);
        if (fault.kind == Kind::kCutBoth) network_.heal(fault.peer, fault.rank);
      });
    case Kind::kOtherToken:
    case Kind::kOtherSpec: return;
  }
}

// Its threads run to their ends when nobody looks any more (bury_the_dead).
void Meeting::kill(const MeetingFault& fault) {
  const int process = process_of(fault.rank);
  at(process).is_dead = true;
  scheduler_.freeze(process);
  sockets_.close_all(process);
  const int again = fault.rank + static_cast<int>(processes_.size() / 2);
  if (fault.kind == Kind::kRestart && !at(again).is_started) {
    scheduler_.after(fault.lasts, [this, rank = fault.rank, again] {
      note("rank " + std::to_string(rank) + " is started again");
      start(rank, again);
    });
    at(again).is_started = true;
    at(again).rank = fault.rank;
  }
  bury_the_dead();
}

void Meeting::bury_the_dead() {
  const auto goes_on = [](const Process& each) {
    return each.is_started && !each.is_dead && !each.has_ended;
  };
  if (std::ranges::any_of(processes_, goes_on)) return;
  for (int process = 0; process < static_cast<int>(processes_.size()); ++process) {
    if (at(process).is_dead && scheduler_.is_frozen(process)) scheduler_.thaw(process);
  }
}

bool Meeting::has(Kind kind) const {
  return std::ranges::any_of(plan_.faults, [kind](const MeetingFault& each) { return each.kind == kind; });
}

bool Meeting::is_guilty(int rank) const {
  return std::ranges::any_of(plan_.faults, [rank](const MeetingFault& each) {
    const bool is_path = each.kind == Kind::kCut || each.kind == Kind::kCutBoth;
    return each.rank == rank || (is_path && each.peer == rank);
  });
}

void Meeting::breaks(int rank, const std::string& text) {
  note("VIOLATION by rank " + std::to_string(rank) + ": " + text);
  if (broken_.empty()) broken_ = "rank " + std::to_string(rank) + ": " + text;
}

// Whether the error may name that rank. One that has given up hangs up, before the others know why. Who is
// started again may find nobody. Who has another token does not know who is right; nor do two groups with
// other settings of which some have died.
bool Meeting::may_blame(const Error& error) const {
  const int suspect = error.suspect;
  if (suspect == kNoSuspect || is_guilty(suspect) || has(Kind::kOtherToken)) return true;
  if (error.code == ErrorCode::kMismatch) return has(Kind::kOtherSpec);
  return has(Kind::kRestart) || processes_[static_cast<std::size_t>(suspect)].error.has_value();
}

// An error only where something has gone wrong, of the right kind, and about a rank that had to do with it.
void Meeting::check(const Process& own) {
  const Error& error = *own.error;
  const std::string told = "fails (" + error.message + ")";
  const auto delay = plan_.delay();
  if (delay && *delay < plan_.timeout) breaks(own.rank, told + " although all could have met in time");
  if (!may_blame(error)) {
    breaks(own.rank, told + " and blames rank " + std::to_string(error.suspect) + ", which is innocent");
  }
  if (error.code == ErrorCode::kUnauthorized && !has(Kind::kOtherToken)) {
    breaks(own.rank, told + " although all have one token");
  }
  if (error.code == ErrorCode::kMismatch && !has(Kind::kOtherSpec) && !has(Kind::kRestart)) {
    breaks(own.rank, told + " although all have the same settings");
  }
}

std::string Meeting::check_all() {
  for (const Process& each : processes_) {
    if (each.error) check(each);
  }
  if (!broken_.empty()) return broken_;
  const auto delay = plan_.delay();
  if (!delay || *delay >= plan_.timeout) return {};
  for (const Process& each : processes_) {
    if (each.is_started && !each.has_met)
      return "rank " + std::to_string(each.rank) + " has not met the others";
  }
  return {};
}

std::size_t Meeting::errors() const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(processes_, [](const Process& each) { return each.error.has_value(); }));
}

std::size_t Meeting::met() const noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(processes_, &Process::has_met));
}

namespace {

using namespace std::chrono_literals;
using Kind = MeetingFault::Kind;

constexpr std::array kKinds{
    "is killed",       "is killed and started again", "freezes",           "is cut off, one way, from",
    "is cut off from", "has another token",           "has other settings"};
// What was lost is sent again after twice as long each time, so a path may seem down for as long again.
constexpr int kRepeats = 2;
constexpr Clock::duration kRepair = 3s;

MeetingFault draw_fault(Dice& dice, const MeetingPlan& plan) {
  constexpr std::array kAll{Kind::kKill,    Kind::kKill, Kind::kRestart, Kind::kFreeze,     Kind::kFreeze,
                            Kind::kFreeze,  Kind::kCut,  Kind::kCut,     Kind::kCutBoth,    Kind::kCutBoth,
                            Kind::kRestart, Kind::kKill, Kind::kCut,     Kind::kOtherToken, Kind::kOtherSpec};
  MeetingFault fault;
  fault.kind = dice.pick(kAll);
  fault.rank = static_cast<int>(dice.below(static_cast<std::uint64_t>(plan.world)));
  fault.peer = (fault.rank + dice.between(1, plan.world - 1)) % plan.world;
  // Before it dials, or within a handshake, or later.
  const std::array longest{Clock::duration{1us}, 4 * (plan.path.least + plan.path.jitter) + 100us,
                           plan.timeout};
  fault.at = dice.time_between(1ns, dice.pick(longest));
  if (dice.one_in(2)) fault.calls = 1 + dice.below(60);
  fault.lasts =
      dice.one_in(2) ? dice.time_between(1ms, plan.timeout / 4) : dice.time_between(1s, 2 * plan.timeout);
  return fault;
}

}  // namespace

std::string MeetingFault::text() const {
  std::string told = "rank " + std::to_string(rank) + " " + kKinds[static_cast<std::size_t>(kind)];
  if (kind == Kind::kOtherToken || kind == Kind::kOtherSpec) return told;
  if (kind == Kind::kCut || kind == Kind::kCutBoth) told += " rank " + std::to_string(peer);
  told += ", " + seconds_text(at) + (calls > 0 ? " and " + std::to_string(calls) + " calls" : "") +
          " after it has come";
  return kind == Kind::kKill ? told : told + ", for " + seconds_text(lasts);
}

std::string MeetingPlan::text() const {
  std::string told = "seed " + std::to_string(seed) + ": " + std::to_string(world) + " ranks meet at " +
                     (has_rendezvous ? "a rendezvous" : "their endpoints") +
                     (encryption == Encryption::kOff ? "" : ", encrypted") + ", connect_timeout " +
                     seconds_text(timeout) + ", " + std::to_string(streams) + " streams, paths of " +
                     seconds_text(path.least) + " and up to " + seconds_text(path.jitter) +
                     " more; they come at";
  for (const Clock::duration each : comes) told += " " + seconds_text(each);
  for (const MeetingFault& fault : faults) told += "\n  " + fault.text();
  return told;
}

std::optional<Clock::duration> MeetingPlan::delay() const {
  // Six messages and TLS's four, twice: at the rendezvous, and among the others.
  Clock::duration all = *std::ranges::max_element(comes) + 20 * (path.least + path.jitter) + 2s;
  // Once more for further streams, whose packets may be lost, too, and are waited for at either end.
  if (streams > 1) all += 10 * (path.least + path.jitter) + 20s;
  for (const MeetingFault& fault : faults) {
    switch (fault.kind) {
      case Kind::kFreeze: all += fault.lasts; break;
      case Kind::kCut:
      case Kind::kCutBoth: all += kRepeats * fault.lasts + kRepair; break;
      default: return std::nullopt;
    }
  }
  return all;
}

MeetingPlan draw_meeting(std::uint64_t seed, int world) {
  Dice dice(seed, 10);
  MeetingPlan plan;
  plan.seed = seed;
  plan.world = dice.between(2, 5);
  if (world != 0) plan.world = world;
  plan.has_rendezvous = dice.one_in(2);
  // A handshake of TLS takes a hundred times as long as the rest of a run.
  plan.encryption = dice.one_in(16) ? Encryption::kRequired : Encryption::kOff;
  plan.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(dice.time_between(4s, 120s));
  plan.path.least = dice.one_in(3) ? dice.time_between(2ms, 400ms) : dice.time_between(5us, 2ms);
  plan.path.jitter = dice.one_in(4) ? plan.path.least * 2 : plan.path.least / 10;
  plan.path.bytes_per_second = 1e8;
  plan.streams = streams_of(seed);
  plan.buffer = 100'000;
  plan.latencies = {dice.time_between(1us, 50us), dice.time_between(50us, 20ms), 20};
  for (int rank = 0; rank < plan.world; ++rank) {
    plan.comes.push_back(dice.one_in(2) ? dice.time_between(1us, 10ms)
                                        : dice.time_between(1us, plan.timeout / 4));
  }
  constexpr std::array kFaults{0, 1, 1, 1, 1, 2, 2, 3};
  for (int i = dice.pick(kFaults); i > 0; --i) plan.faults.push_back(draw_fault(dice, plan));
  return plan;
}

}  // namespace deltawire::simulation
