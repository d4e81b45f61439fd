#include "simulation/meeting_plan.h"

#include <algorithm>
#include <array>

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;
using Kind = MeetingFault::Kind;

constexpr std::array kKinds{
    "is killed",       "is killed and started again", "freezes",           "is cut off, one way, from",
    "is cut off from", "has another token",           "has other settings"};
// What was lost is sent again after twice as long each time, so a path may seem down for as long again.
constexpr int kRepeats = 2;
constexpr Clock::duration kRepair = 3s;

std::string seconds(Clock::duration time) {
  return std::to_string(std::chrono::duration<double>(time).count()) + " s";
}

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
  told += ", " + seconds(at) + (calls > 0 ? " and " + std::to_string(calls) + " calls" : "") +
          " after it has come";
  return kind == Kind::kKill ? told : told + ", for " + seconds(lasts);
}

std::string MeetingPlan::text() const {
  std::string told = "seed " + std::to_string(seed) + ": " + std::to_string(world) + " ranks meet at " +
                     (has_rendezvous ? "a rendezvous" : "their endpoints") +
                     (encryption == Encryption::kOff ? "" : ", encrypted") + ", connect_timeout " +
                     seconds(timeout) + ", paths of " + seconds(path.least) + " and up to " +
                     seconds(path.jitter) + " more; they come at";
  for (const Clock::duration each : comes) told += " " + seconds(each);
  for (const MeetingFault& fault : faults) told += "\n  " + fault.text();
  return told;
}

std::optional<Clock::duration> MeetingPlan::delay() const {
  // Six messages and TLS's four, twice: at the rendezvous, and among the others.
  Clock::duration all = *std::ranges::max_element(comes) + 20 * (path.least + path.jitter) + 2s;
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
