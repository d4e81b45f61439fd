#include "simulation/plan.h"

#include <algorithm>
#include <array>

#include "deltawire/spec.h"

namespace deltawire::simulation {
namespace {

using namespace std::chrono_literals;
using Kind = Fault::Kind;

constexpr std::array kKinds{
    "is killed",
    "loses power",
    "freezes",
    "is busy",
    "is cut off, one way, from",
    "is cut off from",
    "is split off",
    "becomes slow towards",
    "loses a stream with",
    "loses its end of a stream with",
    "has a bit inverted on the way to",
    "aborts",
    "leaves",
    "disagrees",
};

// Most jobs lose nothing to a codec; the others cover every pattern, with residuals and without.
constexpr std::array kSpecs{"direct(fp32)", "direct(3lc:s=1.75)", "direct(int8)", "gather(sbc)",
                            "gather(3lc)",  "ring(fp32)",         "ring(int8)",   "gather(fp32)"};

std::string milliseconds(Clock::duration time) {
  return std::to_string(std::chrono::duration<double, std::milli>(time).count()) + " ms";
}

bool has_peer(Kind kind) {
  return kind == Kind::kCut || kind == Kind::kCutBoth || kind == Kind::kSlow || kind == Kind::kReset ||
         kind == Kind::kHalfReset || kind == Kind::kFlip;
}

Kind draw_kind(Dice& dice) {
  // Deaths and freezes twice, as they are what a job meets.
  constexpr std::array kAll{Kind::kKill,      Kind::kKill,  Kind::kPowerOff, Kind::kFreeze,
                            Kind::kFreeze,    Kind::kBusy,  Kind::kCut,      Kind::kCutBoth,
                            Kind::kSplit,     Kind::kSlow,  Kind::kReset,    Kind::kFlip,
                            Kind::kHalfReset, Kind::kAbort, Kind::kLeave,    Kind::kDisagree};
  return dice.pick(kAll);
}

Fault draw_fault(Dice& dice, const Plan& plan) {
  Fault fault;
  fault.kind = draw_kind(dice);
  fault.rank = static_cast<int>(dice.below(static_cast<std::uint64_t>(plan.world)));
  fault.peer = (fault.rank + dice.between(1, plan.world - 1)) % plan.world;
  fault.group = 1 + static_cast<unsigned>(dice.below((1U << plan.world) - 2));
  fault.stream = dice.one_in(2) ? StreamKind::kControl : StreamKind::kData;
  fault.step = dice.below(plan.steps);
  fault.point = static_cast<Fault::Point>(dice.below(3));
  // At once, or within a message's time, or within a step's, or within a deadline's.
  const std::array longest{Clock::duration{1us}, 4 * (plan.path.least + plan.path.jitter) + 100us,
                           plan.pause + 10ms, plan.timeout};
  fault.delay = dice.time_between(1ns, dice.pick(longest));
  fault.lasts = dice.one_in(2) ? dice.time_between(1ms, plan.timeout)
                               : plan.timeout + dice.time_between(1ms, 3 * plan.timeout);
  fault.bytes = dice.below(dice.one_in(2) ? 64 : 4096);
  return fault;
}

}  // namespace

std::string Fault::text() const {
  constexpr std::array points{"begins", "is about to vote on", "has voted on"};
  std::string told = "rank " + std::to_string(rank) + " " + kKinds[static_cast<std::size_t>(kind)];
  if (has_peer(kind)) told += " rank " + std::to_string(peer);
  if (kind == Kind::kSplit) {
    told += " with ranks";
    for (int each = 0; group >> each != 0; ++each) {
      if ((group >> each & 1U) != 0) told += " " + std::to_string(each);
    }
  }
  if (kind == Kind::kReset || kind == Kind::kHalfReset || kind == Kind::kFlip) {
    told += stream == StreamKind::kControl ? " (control)" : " (data)";
  }
  told += ", " + milliseconds(delay) + (calls > 0 ? " and " + std::to_string(calls) + " calls" : "") +
          " after it " + points[static_cast<std::size_t>(point)] + " step " + std::to_string(step);
  return told + ", for " + milliseconds(lasts);
}

std::string Plan::text() const {
  std::string told = "seed " + std::to_string(seed) + ": " + std::to_string(world) + " ranks, " +
                     std::to_string(steps) + " steps of " + (spec.empty() ? "plain messages" : spec) +
                     (folds ? " that folds" : "") + " in " + std::to_string(buckets) + " buckets, timeout " +
                     milliseconds(timeout) + ", paths of " + milliseconds(path.least) + " and up to " +
                     milliseconds(path.jitter) + " more, buffers of " + std::to_string(buffer) + " bytes";
  for (const Fault& fault : faults) told += "\n  " + fault.text();
  return told;
}

void draw_network(Dice& dice, Plan& plan) {
  const bool is_far = dice.one_in(3);
  plan.path.least = is_far ? dice.time_between(2ms, 80ms) : dice.time_between(5us, 500us);
  plan.path.jitter = dice.one_in(4) ? plan.path.least * 2 : plan.path.least / 10;
  plan.path.bytes_per_second = dice.one_in(2) ? 1e9 : 2e7;
  plan.timeout = is_far ? dice.time_between(8s, 30s) : dice.time_between(2s, 30s);
  plan.pause = dice.time_between(10us, 100ms);
  constexpr std::array<std::size_t, 4> kBuffers{4096, 20'000, 100'000, 1'000'000};
  plan.buffer = dice.pick(kBuffers);
  plan.latencies = {dice.time_between(1us, 50us), dice.time_between(50us, 20ms), 20};
}

std::vector<Fault> draw_faults(Dice& dice, Dice& calls, const Plan& plan) {
  constexpr std::array kFaults{0, 1, 1, 1, 1, 2, 2, 3};
  std::vector<Fault> faults;
  for (int i = dice.pick(kFaults); i > 0; --i) faults.push_back(draw_fault(dice, plan));
  for (Fault& fault : faults) {
    if (fault.kind != Kind::kFreeze || calls.one_in(2)) continue;
    fault.calls = 1 + calls.below(calls.one_in(2) ? 16 : 200);
    if (calls.one_in(2)) fault.point = Fault::Point::kBeforeVote;
  }
  return faults;
}

Plan draw_plan(std::uint64_t seed, int world) {
  Dice dice(seed, 0);
  Plan plan;
  plan.seed = seed;
  plan.world = dice.one_in(2) ? 3 : dice.between(3, 7);
  if (world != 0) plan.world = world;
  if (dice.one_in(2)) plan.spec = dice.pick(kSpecs);
  const bool is_ring = !plan.spec.empty() && Spec::parse(plan.spec)->pattern == "ring";
  plan.folds = is_ring ? false : dice.one_in(4);
  plan.buckets = 1 + dice.below(3);
  plan.steps = 2 + dice.below(5);
  constexpr std::array<std::size_t, 4> kLongest{100, 3000, 30'000, 150'000};
  plan.longest_message = dice.pick(kLongest);
  draw_network(dice, plan);
  // Messages that take a small part of the deadline, with so small a window.
  const double round_trip = 3 * std::chrono::duration<double>(plan.path.least + plan.path.jitter).count();
  const double share = std::chrono::duration<double>(plan.timeout).count() / 16;
  const auto most = static_cast<std::size_t>(static_cast<double>(plan.buffer) / round_trip * share);
  plan.longest_message = std::min(plan.longest_message, most);
  Dice calls(seed, 4);
  plan.faults = draw_faults(dice, calls, plan);
  return plan;
}

Plan undisturbed(const Plan& plan) {
  Plan calm = plan;
  calm.path = {20us, 2us, 1e9, true};
  calm.buffer = 1'000'000;
  calm.latencies = {1us, 1us, 1};
  calm.timeout = 30s;
  calm.pause = 1us;
  calm.folds = false;
  calm.faults.clear();
  return calm;
}

}  // namespace deltawire::simulation
