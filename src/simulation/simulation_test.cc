// Seeds of the simulator, always the same ones, and the simulator itself.
#include <array>
#include <chrono>
#include <initializer_list>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "deltawire/door.h"
#include "deltawire/snapshot.h"
#include "simulation/disks.h"
#include "simulation/job.h"
#include "simulation/simulate.h"
#include "simulation/sockets.h"

namespace deltawire::simulation::simulation_test {
namespace {

// In each of four tests, which run beside each other.
const std::uint64_t kSeeds = testing::whole_or_brief(250U, 100U);

// Of jobs, meetings, parameter servers, or elastic sessions.
using Simulate = Outcome (*)(std::uint64_t seed, int world, bool prints);

struct Totals {
  std::size_t faults = 0;
  std::uint64_t steps = 0;
};

// `option`: of deltawire_simulate, for these.
Totals keep_every_promise(Simulate play, const char* option, std::uint64_t first, std::uint64_t count) {
  Totals totals;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const Outcome outcome = play(seed, 0, false);
    EXPECT_EQ(outcome.broken, "") << outcome.plan << "\nagain: deltawire_simulate " << option << "--seed "
                                  << seed << " --trace";
    totals.faults += outcome.faults;
    totals.steps += outcome.steps;
  }
  return totals;
}

// docs/design/simulation.md, "What it has found", says what each was.
void keep_promises_once_broken(Simulate play, std::initializer_list<std::uint64_t> seeds) {
  for (const std::uint64_t seed : seeds) EXPECT_EQ(play(seed, 0, false).broken, "") << seed;
}

// What is simulated, seeds of runs that must repeat themselves, and the fewest ranks.
struct Kind {
  const char* name;
  Simulate play;
  std::vector<std::uint64_t> seeds;
  int least;
};

class Kinds : public ::testing::TestWithParam<Kind> {};

INSTANTIATE_TEST_SUITE_P(All, Kinds,
                         ::testing::Values(Kind{"jobs", simulate, {2, 25, 47, 156, 236}, 3},
                                           Kind{"servers", simulate_served, {1, 72, 522}, 3},
                                           Kind{"sessions", simulate_elastic, {1, 18, 32}, 2},
                                           Kind{"meetings", simulate_meeting, {1, 12, 259}, 2}),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(Kinds, RepeatThemselvesToTheLastEvent) {
  for (const std::uint64_t seed : GetParam().seeds) {
    const Outcome once = GetParam().play(seed, 0, false);
    const Outcome again = GetParam().play(seed, 0, false);
    EXPECT_EQ(once.hash, again.hash) << seed;
    EXPECT_EQ(once.events, again.events) << seed;
    EXPECT_NE(once.hash, GetParam().play(seed + 1, 0, false).hash) << seed;
  }
}

// Every number of them, and whatever the seed wants.
TEST_P(Kinds, TakeAsManyRanksAsWanted) {
  for (int world = GetParam().least; world <= 7; ++world) {
    EXPECT_EQ(GetParam().play(4, world, false).broken, "") << world;
  }
}

class Seeds : public ::testing::TestWithParam<std::uint64_t> {};

INSTANTIATE_TEST_SUITE_P(Quarters, Seeds, ::testing::Values(0, kSeeds, 2 * kSeeds, 3 * kSeeds));

TEST_P(Seeds, KeepEveryPromise) {
  const Totals totals = keep_every_promise(simulate, "", GetParam(), kSeeds);
  EXPECT_GT(totals.faults, kSeeds / 2);
  EXPECT_GT(totals.steps, 5 * kSeeds);
}

TEST(Servers, KeepEveryPromise) {
  const Totals totals = keep_every_promise(simulate_served, "--servers ", 0, kSeeds);
  EXPECT_GT(totals.faults, kSeeds / 2);
  EXPECT_GT(totals.steps, 3 * kSeeds);
}

TEST(Servers, KeepThePromisesThatTheyOnceBroke) {
  keep_promises_once_broken(
      simulate_served, {672, 717, 1295, 1412, 6229, 9799, 45095, 48249, 105056, 118088, 50046759, 40116208,
                        80009369, 80041495, 5000009028, 5019639, 5019689});
}

TEST(Elastic, KeepsEveryPromise) {
  const std::uint64_t kSessions = testing::whole_or_brief(60U, 30U);
  const Totals totals = keep_every_promise(simulate_elastic, "--elastic ", 0, kSessions);
  EXPECT_GT(totals.faults, testing::whole_or_brief(60U, 20U));
  EXPECT_GT(totals.steps, 50 * kSessions);
  (void)keep_every_promise(simulate_elastic, "--elastic ", std::uint64_t{1} << 40U, kSessions / 2);
}

TEST(Elastic, KeepsThePromisesThatItOnceBroke) {
  keep_promises_once_broken(simulate_elastic, {10048403, 10096322, 10115009, 10122661, 20011692});
}

TEST(Meetings, KeepEveryPromise) {
  const std::uint64_t kMeetings = testing::whole_or_brief(200U, 80U);
  const Totals totals = keep_every_promise(simulate_meeting, "--meetings ", 0, kMeetings);
  EXPECT_GT(totals.faults, kMeetings);
  EXPECT_GT(totals.steps, kMeetings);
}

// Others have given up and hung up on it, while it was frozen or not started yet: that is no other token.
TEST(Meetings, WhoComesAfterTheOthersHaveGivenUpIsNotUnauthorized) {
  keep_promises_once_broken(simulate_meeting, {259, 876, 3006118});
}

// Of a circle, or a chain, of waits: a rank that stands still, one that another's bytes don't reach, or one
// that was frozen as long as the deadline and has just gone on.
TEST(Simulation, WhoHoldsUpTheOthersIsNamedAndNotWhoWaits) {
  keep_promises_once_broken(
      simulate, {20028923, 20064208, 30165444, 30680236, 30534692, 30963283, 20011348, 30099582, 30751641});
}

// The step's time is used up by a rank that freezes or comes late; a wait that begins then asks the others
// before it blames one.
TEST(Simulation, WhoComesLateToItsWaitAsksBeforeItBlames) {
  keep_promises_once_broken(simulate, {2011781, 2023854, 2039313, 2047055, 3022109});
}

// A rank that has all others' votes freezes within a call on the way to its own, and the others give up
// without it. When it wakes up it must read what they say before it counts the step, or it would be a step
// ahead alone.
TEST(Simulation, ARankThatWakesUpInItsVoteReadsBeforeItCounts) {
  using namespace std::chrono_literals;
  constexpr int kWorld = 4;
  constexpr std::uint64_t kCalls = 31;  // that a vote makes, at least
  for (std::uint64_t calls = 1; calls <= kCalls; ++calls) {
    Plan plan = undisturbed(draw_plan(1, kWorld));
    plan.spec.clear();
    plan.longest_message = 100;
    plan.timeout = 2s;
    plan.faults = {{.kind = Fault::Kind::kFreeze,
                    .rank = 1,
                    .step = 1,
                    .point = Fault::Point::kBeforeVote,
                    .delay = 50ms,
                    .calls = calls,
                    .lasts = 30s}};
    Trace trace(false);
    Job job(plan, trace);
    EXPECT_EQ(job.run(), "") << calls << " calls";
    EXPECT_EQ(job.happened(), 1U) << calls << " calls";
    for (const RankLog& log : job.logs()) {
      EXPECT_EQ(log.endings.front().next_step, job.logs().front().endings.front().next_step)
          << calls << " calls";
    }
  }
}

// A snapshot, which is flushed, outlives its machine's power; of those that the disk only says to have
// flushed some are there, and those whole or damaged.
TEST(Disks, LoseWhatTheyHaveNotFlushed) {
  const std::vector<std::byte> state(3000, std::byte{7});
  int first = 0;
  int second = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Disks disks(seed, 2);
    const Disks::Use use(disks, {});
    const SnapshotPlace place{.folder = Disks::folder(1), .rank = 0, .settings = {}};
    ASSERT_TRUE(write_snapshot(place, 5, state)) << seed;
    disks.lose_power(1);
    ASSERT_EQ(*find_snapshots(place), std::vector<std::uint64_t>{5}) << seed;
    disks.lie(1);
    ASSERT_TRUE(write_snapshot(place, 6, state)) << seed;
    disks.lose_power(1);
    const auto found = *find_snapshots(place);
    for (const std::uint64_t step : found) {
      EXPECT_EQ(*read_snapshot(place, step), state) << seed;
      ++(step == 5 ? first : second);
    }
    EXPECT_EQ(disks.open_count(), 0U);
    EXPECT_TRUE(disks.names(0).empty());
  }
  EXPECT_EQ(first, 40);
  EXPECT_GT(second, 0);
  EXPECT_LT(second, 40);
}

TEST(Disks, WithoutRoomKeepWhatTheyHave) {
  for (const NoRoom place_of_error : {NoRoom::kWrite, NoRoom::kFlush, NoRoom::kClose}) {
    Disks disks(1, 1);
    const Disks::Use use(disks, {});
    const SnapshotPlace place{.folder = Disks::folder(0), .rank = 0, .settings = {}};
    ASSERT_TRUE(write_snapshot(place, 5, {}));
    disks.set_room(0, place_of_error);
    EXPECT_EQ(write_snapshot(place, 6, std::vector<std::byte>(100)).error().code, ErrorCode::kIo);
    EXPECT_EQ(disks.names(0).size(), 1U);
    disks.set_room(0, NoRoom::kNowhere);
    EXPECT_TRUE(write_snapshot(place, 6, {}));
  }
}

Trace& silent_trace() {
  static Trace trace(false);
  return trace;
}

TEST(Network, DeliversInOrderAndHoldsBackWhileAPathIsDown) {
  Scheduler scheduler(1, {std::chrono::microseconds(1), std::chrono::microseconds(1), 1}, silent_trace());
  Network network(1, scheduler, silent_trace());
  auto links = network.connect(2, {std::chrono::milliseconds(1), {}, 1e9, true}, 100);
  std::string got;
  scheduler.start_on(0, [&] {
    const Deadline begin = scheduler.now();
    Link& here = *links[0][1].data;
    Link& there = *links[1][0].data;
    const auto send = [&](std::string text) {
      const iovec piece{text.data(), text.size()};
      return here.send(std::span(&piece, 1));
    };
    const auto receive = [&] {
      std::array<std::byte, 100> into{};
      const IoResult result = there.recv(into);
      got.assign(reinterpret_cast<const char*>(into.data()), result.bytes);
      return result.kind;
    };
    EXPECT_EQ(send("one ").bytes, 4U);
    EXPECT_EQ(send("two").bytes, 3U);
    EXPECT_EQ(receive(), IoResult::Kind::kWouldBlock) << "it is on its way";
    scheduler.sleep(std::chrono::milliseconds(3));
    EXPECT_EQ(receive(), IoResult::Kind::kOk);
    EXPECT_EQ(got, "one two");
    network.cut(0, 1);
    EXPECT_EQ(send("late").bytes, 4U);
    scheduler.sleep(std::chrono::seconds(1));
    EXPECT_EQ(receive(), IoResult::Kind::kWouldBlock);
    EXPECT_EQ(here.unacknowledged(), 4U);
    network.heal(0, 1);
    scheduler.sleep(std::chrono::seconds(1));
    EXPECT_EQ(receive(), IoResult::Kind::kOk);
    EXPECT_EQ(got, "late");
    EXPECT_EQ(here.unacknowledged(), 0U);
    scheduler.sleep(std::chrono::milliseconds(10));
    EXPECT_EQ(send(std::string(200, 'x')).bytes, 100U) << "the buffers are full";
    EXPECT_EQ(send("y").kind, IoResult::Kind::kWouldBlock);
    network.close_all(0);
    scheduler.sleep(std::chrono::seconds(1));
    EXPECT_EQ(receive(), IoResult::Kind::kOk);
    EXPECT_EQ(receive(), IoResult::Kind::kClosed);
    EXPECT_LT(scheduler.now() - begin, std::chrono::seconds(4));
  });
  EXPECT_EQ(scheduler.run(1000), "");
}

// Doors and lines run over simulated sockets as meshes do.
TEST(Doors, AnswerOverSimulatedSockets) {
  using namespace std::chrono_literals;
  for (const Encryption encryption : {Encryption::kOff, Encryption::kRequired}) {
    Scheduler scheduler(1, {1us, 1us, 1}, silent_trace());
    Network network(1, scheduler, silent_trace());
    Sockets sockets(scheduler, network, 10'000);
    for (const auto& [from, to] : {std::pair(0, 1), std::pair(1, 0)})
      network.path(from, to) = {1ms, {}, 1e9, true};
    const DoorOptions options{.encryption = encryption};
    const Deadline begin = scheduler.now();
    std::size_t heard = 0;
    scheduler.start_on(0, [&] {
      const auto door = *open_door(*listen_tcp("10.0.0.1", 29600), options);
      EXPECT_EQ(door->answer(scheduler.now() + 10s).error().code, ErrorCode::kTimeout);
      const auto line = *door->answer(scheduler.now() + 1h);
      heard = line->receive(100'000, scheduler.now() + 10s)->size();
      EXPECT_EQ(line->receive(10, scheduler.now() + 1h).error().code, ErrorCode::kPeerLost);
    });
    scheduler.start_on(1, [&] {
      const auto call = [&](const char* host) {
        return call_at_door({host, 29600}, options, scheduler.now() + 5s);
      };
      scheduler.sleep(20s);
      EXPECT_EQ(call("10.0.0.2").error().code, ErrorCode::kPeerLost) << "nobody listens there";
      network.cut(0, 1);
      EXPECT_EQ(call("10.0.0.1").error().code, ErrorCode::kTimeout);
      network.heal(0, 1);
      const auto line = *call("10.0.0.1");
      EXPECT_TRUE(line->send(std::vector<std::byte>(50'000), scheduler.now() + 10s));
    });
    EXPECT_EQ(scheduler.run(100'000), "");
    EXPECT_EQ(heard, 50'000U);
    EXPECT_EQ(sockets.open_ends(), 0U);
    EXPECT_LT(scheduler.now() - begin, 40s);
  }
}

TEST(Scheduler, FindsThreadsThatWaitForEver) {
  Scheduler scheduler(1, {std::chrono::microseconds(1), std::chrono::microseconds(1), 1}, silent_trace());
  int event = 0;
  scheduler.start_on(0, [&] {
    scheduler.wait(&event, Deadline::max());
    scheduler.wait(&event, Deadline::max());
  });
  scheduler.start_on(1, [&] {
    scheduler.sleep(std::chrono::hours(1));
    scheduler.notify(&event);
  });
  EXPECT_EQ(scheduler.run(1000), "1 threads wait for ever");
}

TEST(Scheduler, FrozenProcessesRunAgainWhenTheyWakeUp) {
  Scheduler scheduler(1, {std::chrono::microseconds(1), std::chrono::microseconds(1), 1}, silent_trace());
  const Deadline begin = scheduler.now();
  Deadline slept{};
  scheduler.start_on(0, [&] {
    scheduler.sleep(std::chrono::seconds(1));
    slept = scheduler.now();
  });
  scheduler.after(std::chrono::milliseconds(1), [&] { scheduler.freeze(0); });
  scheduler.after(std::chrono::seconds(5), [&] { scheduler.thaw(0); });
  EXPECT_EQ(scheduler.run(1000), "");
  EXPECT_GE(slept - begin, std::chrono::seconds(5));
}

}  // namespace
}  // namespace deltawire::simulation::simulation_test
