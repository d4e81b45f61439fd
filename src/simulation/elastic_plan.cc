#include <array>

#include "simulation/elastic_run.h"

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;
using Kind = ElasticFault::Kind;

constexpr std::array kKinds{"is killed",
                            "loses power",
                            "freezes",
                            "freezes as the host of a meeting",
                            "freezes when it is asked for its residuals",
                            "is not heard any more when it votes",
                            "is busy",
                            "is split off",
                            "is cut off, one way, from",
                            "becomes slow towards",
                            "leaves",
                            "aborts",
                            "joins",
                            "joins with other shapes"};
constexpr std::array kSpecs{"direct(fp32)", "direct(3lc:s=1.75)", "direct(3lc:s=1.75)", "direct(int8)",
                            "ring(int8)",   "gather(sbc)",        "gather(3lc)",        "ring(fp32)"};
constexpr std::array kScenes{"a host freezes",  "a giver freezes",  "a member freezes",
                             "a voter is mute", "a member is busy", "a misfit",
                             "a crowd",         "two die at once",  "several join"};
constexpr Clock::duration kShort = 7s;  // time to meet
constexpr int kCrowd = 7;               // processes that join and leave again

Kind draw_kind(Dice& dice) {
  constexpr std::array kAll{Kind::kKill,   Kind::kKill, Kind::kKill,  Kind::kPowerOff,  Kind::kFreeze,
                            Kind::kFreeze, Kind::kBusy, Kind::kSplit, Kind::kCut,       Kind::kSlow,
                            Kind::kLeave,  Kind::kJoin, Kind::kJoin,  Kind::kFreezeHost};
  return dice.one_in(12) ? Kind::kAbort : dice.pick(kAll);
}

ElasticFault draw_fault(Dice& dice, const ElasticPlan& plan) {
  ElasticFault fault;
  fault.kind = draw_kind(dice);
  fault.process = static_cast<int>(dice.below(static_cast<std::uint64_t>(plan.world)));
  fault.peer = (fault.process + dice.between(1, plan.world - 1)) % plan.world;
  fault.group = 1 + static_cast<unsigned>(dice.below((1U << static_cast<unsigned>(plan.world)) - 2));
  constexpr std::array<Clock::duration, 3> kLongest{500ms, 5s, 40s};
  fault.lasts = dice.up_to(dice.pick(kLongest));
  constexpr std::array<std::uint64_t, 3> kCalls{16, 200, 2000};
  if (dice.one_in(2)) fault.calls = 1 + dice.below(dice.pick(kCalls));
  return fault;
}

// The crowd's processes come one after the other, and leave before the next one does.
void draw_crowd(ElasticPlan& plan, Clock::duration at) {
  plan.steps = 100;
  plan.pause = 100ms;
  for (int number = 0; number < kCrowd; ++number) {
    plan.faults.push_back({.kind = Kind::kJoin, .at = at + number * 1200ms});
    plan.faults.push_back(
        {.kind = Kind::kLeave, .process = plan.world + number, .at = at + number * 1200ms + 600ms});
  }
}

// A third of the seeds have one, half of these nothing else.
void draw_scene(Dice& dice, ElasticPlan& plan) {
  if (!dice.one_in(3)) return;
  plan.scene = dice.pick(kScenes);
  plan.is_pure = dice.one_in(2);
  if (plan.is_pure) {
    plan.faults.clear();
    plan.world = 5;
    plan.at_least.reset();
    plan.comes.assign(5, 1ms);
  }
  const Clock::duration at = 1s + dice.up_to(2s);
  const bool is_aimed =
      plan.scene == "a host freezes" || plan.scene == "a giver freezes" || plan.scene == "a voter is mute";
  if (is_aimed && plan.is_pure) {  // the others still train when the victim's time is over
    plan.steps = 60;
    plan.pause = 1s;
    if (dice.one_in(2)) plan.meeting = kShort;
  }
  const int victim = static_cast<int>(dice.below(static_cast<std::uint64_t>(plan.world)));
  const int other = (victim + dice.between(1, plan.world - 1)) % plan.world;
  ElasticFault kill{.kind = Kind::kKill, .process = victim, .at = at};
  const std::array<Clock::duration, 3> longest{5s, 10s, plan.meeting * 3 / 2};
  ElasticFault freeze{.kind = Kind::kFreezeHost, .at = at, .lasts = dice.up_to(dice.pick(longest))};
  // About when others take it for gone; they have no time to form two more views.
  if (dice.one_in(4) || plan.meeting == kShort) freeze.lasts = 2900ms + dice.up_to(300ms);
  if (plan.scene == "a giver freezes") freeze.kind = Kind::kFreezeGiver;
  if (plan.scene == "a member freezes") {  // somewhere in the meeting
    freeze.kind = Kind::kFreeze;
    freeze.process = other;
    freeze.calls = 1 + dice.below(1000);
  }
  if (plan.scene == "a voter is mute") {
    plan.faults.push_back({.kind = Kind::kMuteVoter, .at = at, .lasts = dice.up_to(10s)});
  } else if (is_aimed || plan.scene == "a member freezes") {
    plan.faults.insert(plan.faults.end(), {kill, freeze});
  } else if (plan.scene == "a member is busy") {
    kill.at += dice.up_to(500ms);
    plan.faults.push_back(
        {.kind = Kind::kBusy, .process = other, .at = at, .lasts = 3100ms + dice.up_to(1100ms)});
    plan.faults.push_back(kill);
  } else if (plan.scene == "a misfit") {
    plan.faults.push_back({.kind = Kind::kMisfit, .at = at});
  } else if (plan.scene == "two die at once") {
    ElasticFault second = kill;
    second.process = other;
    second.at += dice.one_in(2) ? Clock::duration{} : dice.up_to(4s);
    plan.faults.insert(plan.faults.end(), {kill, second});
  } else if (plan.scene == "several join") {  // one while another one connects
    for (int i = dice.between(2, 4); i > 0; --i) {
      plan.faults.push_back({.kind = Kind::kJoin, .at = at + dice.up_to(dice.one_in(2) ? 100ms : 2s)});
    }
  } else if (plan.is_pure) {
    draw_crowd(plan, at);
  }
}

}  // namespace

std::string ElasticFault::text() const {
  std::string told = seconds_text(at) + (calls > 0 ? " and " + std::to_string(calls) + " calls" : "") + ": ";
  if (kind == Kind::kFreezeHost || kind == Kind::kFreezeGiver || kind == Kind::kMuteVoter ||
      kind == Kind::kJoin || kind == Kind::kMisfit) {
    told += "a process ";
  } else {
    told += "process " + std::to_string(process) + " ";
  }
  told += kKinds[static_cast<std::size_t>(kind)];
  if (kind == Kind::kCut || kind == Kind::kSlow) told += " process " + std::to_string(peer);
  if (kind == Kind::kSplit) {
    told += " with processes";
    for (unsigned each = 0; group >> each != 0; ++each) {
      if ((group >> each & 1U) != 0) told += " " + std::to_string(each);
    }
  }
  return lasts == Clock::duration{} ? told : told + ", for " + seconds_text(lasts);
}

std::string ElasticPlan::text() const {
  std::string told =
      "seed " + std::to_string(seed) + ": " + std::to_string(world) + " members, " + std::to_string(steps) +
      " steps of " + spec + " in " + std::to_string(buckets) + " buckets" +
      (at_least ? ", at_least=" + std::to_string(*at_least) : "") + (gives_state ? "" : ", no state") +
      (state_bytes > 0 ? ", a state of " + std::to_string(state_bytes) + " bytes" : "") +
      (encryption == Encryption::kOff ? "" : ", encrypted") + ", timeout " + seconds_text(timeout) +
      ", connect_timeout " + seconds_text(meeting) + ", pauses up to " + seconds_text(pause) + ", " +
      std::to_string(streams) + " streams" + ", paths of " + seconds_text(path.least) + " and up to " +
      seconds_text(path.jitter) + " more" + (scene.empty() ? "" : "; " + scene);
  for (const ElasticFault& fault : faults) told += "\n  " + fault.text();
  return told;
}

ElasticPlan draw_elastic(std::uint64_t seed, int world) {
  Dice dice(seed, 30);
  ElasticPlan plan;
  plan.seed = seed;
  plan.world = dice.between(2, 7);
  if (world != 0) plan.world = world;
  plan.streams = streams_of(seed);
  plan.spec = dice.pick(kSpecs);
  plan.buckets = 1 + dice.below(2);
  plan.steps = 8 + dice.below(16);
  plan.pause = dice.one_in(2) ? 100ms : 500ms;
  plan.timeout = 2s + dice.up_to(4s);
  plan.meeting = std::chrono::duration_cast<std::chrono::milliseconds>(8s + dice.up_to(22s));
  if (dice.one_in(8)) plan.at_least = dice.between(1, plan.world);
  plan.gives_state = !dice.one_in(16);
  if (dice.one_in(24)) plan.state_bytes = 5'000'000 + dice.below(5'000'000);
  if (dice.one_in(32)) plan.encryption = Encryption::kRequired;
  plan.path.least = dice.one_in(4) ? dice.time_between(2ms, 30ms) : dice.time_between(5us, 2ms);
  plan.path.jitter = dice.one_in(4) ? plan.path.least * 2 : plan.path.least / 10;
  plan.path.bytes_per_second = dice.one_in(2) ? 1e9 : 2e7;
  plan.buffer = dice.one_in(4) ? 20'000 : 1'000'000;
  plan.latencies = {dice.time_between(1us, 50us), dice.time_between(50us, 20ms), 20};
  for (int rank = 0; rank < plan.world; ++rank) {
    plan.comes.push_back(dice.one_in(4) ? dice.time_between(1us, plan.meeting / 8)
                                        : dice.time_between(1us, 10ms));
  }
  constexpr std::array kFaults{0, 1, 1, 1, 2, 2, 3, 4};
  Clock::duration at{};
  for (int i = dice.pick(kFaults); i > 0; --i) {
    // The next one within the meeting that follows the last, or some steps later.
    constexpr std::array<Clock::duration, 3> kGaps{100ms, 1s, 3s};
    at += dice.up_to(dice.pick(kGaps));
    plan.faults.push_back(draw_fault(dice, plan));
    plan.faults.back().at = at;
  }
  draw_scene(dice, plan);
  if (seed >> 40U != 0) plan.path.least = dice.time_between(10ms, 60ms);  // sessions between sites
  if (seed >> 40U != 0) plan.meeting += 12s;
  return plan;
}

}  // namespace deltawire::simulation
