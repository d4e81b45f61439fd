// Unit tests of FailureJudge, with simulated time: which rank is to blame for a wait that is too long.
#include "transport/mesh/failure_judge.h"

#include <array>

#include "transport/mesh/mesh_parts_testing.h"

namespace deltawire::test::failure_judge_test {
namespace {

using namespace std::chrono_literals;

using Said = std::vector<ControlMessage>;

constexpr Deadline kStart{1h};

// Rank 0 of three waits for rank 1, from kStart on, for ten seconds.
class Judged : public ::testing::Test, protected MeshParts {
 protected:
  // The error after this much time.
  Error time_out_after(Clock::duration time) {
    judge.time_out(wait_, kStart + time);
    EXPECT_TRUE(consensus.failed());
    return consensus.failed() ? consensus.failure() : Error{};
  }
  void hear(int rank, Clock::duration time) { peers[rank].heard_at = kStart + time; }
  // All that wait in a circle have answered; the deadline passes, and these answer again.
  void ask_again(std::initializer_list<int> answer) {
    hear(1, 6s);
    hear(2, 6s);
    judge.time_out(wait_, kStart + 10s);
    for (const int rank : answer) hear(rank, 10s + 100ms);
  }
  // What is said of them a second after the deadline.
  Error circle_ends() {
    judge.time_out(wait_, wait_.deadline);
    return time_out_after(11s);
  }

  static void expect_blamed(const Error& error, int suspect, const std::string& words) {
    EXPECT_EQ(error.suspect, suspect);
    EXPECT_TRUE(says(error, words)) << error.message;
  }

  Operation& receive_ = post(1);
  ListedWaiter listed_{waiters, receive_, kStart, kStart + 10s};
  Waiter& wait_ = listed_.waiter;
};

TEST_F(Judged, ARankThatWaitsForNoOtherIsToBlame) {
  announcer.ask(wait_, kStart + 5s);
  hear(1, 6s);
  const Error error = time_out_after(10s);
  EXPECT_EQ(error.code, ErrorCode::kTimeout);
  EXPECT_EQ(error.suspect, 1);
  EXPECT_EQ(error.text(),
            "rank 0 waited 10000 ms for a message of rank 1; rank 1 waits for nobody: frozen, stuck or busy, "
            "or the time (timeout) is too short for the link; see its own log");
}

TEST_F(Judged, TheChainOfWaitsIsFollowed) {
  announcer.ask(wait_, kStart + 5s);
  hear(1, 6s);
  hear(2, 6s);
  announcer.on_waiting(peers[1], Waiting{2, 0});
  expect_blamed(time_out_after(10s), 2, "; rank 1 waits for rank 2; rank 2 waits for nobody: ");
}

// What it said may be over by now.
TEST_F(Judged, TheChainEndsAtWhoAnswersNothing) {
  announcer.on_waiting(peers[1], Waiting{2, 0});
  announcer.ask(wait_, kStart + 5s);
  hear(2, 6s);
  expect_blamed(time_out_after(10s), 1,
                "; rank 1 waits for rank 2; rank 1 answers nothing, so it is frozen or cut off");
}

// A little later than its deadline: another rank may know of a message that was lost.
TEST_F(Judged, ACircleIsSaidOnceNobodyKnowsBetter) {
  announcer.ask(wait_, kStart + 5s);
  announcer.on_waiting(peers[1], Waiting{0, 0});
  hear(1, 6s);
  judge.time_out(wait_, kStart + 10s);
  EXPECT_EQ(wait_.asked_at, kStart + 10s) << "all are asked again, and acknowledge it";
  EXPECT_EQ(wait_.deadline, kStart + 10s + 600ms);
  hear(1, 10s + 100ms);
  (void)links.said_to(1);
  judge.time_out(wait_, wait_.deadline);
  EXPECT_EQ(wait_.deadline, kStart + 11s);
  EXPECT_EQ(links.said_to(1), Said{(Waiting{1, 0})}) << "by now they know who acknowledges nothing";
  EXPECT_FALSE(consensus.failed());
  EXPECT_TRUE(says(time_out_after(11s), "the ranks wait for each other in a circle"));
}

// It has announced that it waits before it stood still.
TEST_F(Judged, WhoAnswersNothingAnyMoreIsToBlameForACircle) {
  announcer.ask(wait_, kStart + 5s);
  announcer.on_waiting(peers[1], Waiting{2, 0});
  announcer.on_waiting(peers[2], Waiting{0, 0});
  ask_again({1});
  expect_blamed(circle_ends(), 2,
                "; rank 1 waits for rank 2, rank 2 waits for rank 0; rank 2 answers nothing, so it is "
                "frozen or cut off; see its own log");
}

// The path between two others is cut: this rank hears it from one of them.
TEST_F(Judged, InACircleWhoIsDeafToAnotherIsToBlame) {
  announcer.ask(wait_, kStart + 5s);
  announcer.on_waiting(peers[1], Waiting{2, 0});
  announcer.on_waiting(peers[2], Waiting{1, 0});
  ask_again({1, 2});
  peers[2].deaf = 1;
  expect_blamed(circle_ends(), 1,
                "; rank 1 waits for rank 2, rank 2 waits for rank 1; rank 2 says that rank 1's machine "
                "acknowledges nothing that it sends; check the network in this direction");
}

TEST_F(Judged, InACircleWhoseWordsDoNotArriveHereIsToBlame) {
  announcer.ask(wait_, kStart + 5s);
  announcer.on_waiting(peers[1], Waiting{0, 0});
  ask_again({1});
  peers[1].deaf = 0;
  expect_blamed(circle_ends(), 1, "; rank 1 says that rank 0's machine acknowledges nothing");
}

// Rank 2 was frozen as long as the deadline: rank 1 has just got what it waited for, and comes to its turn.
TEST_F(Judged, WhoseOwnWaitIsJustOverHasTimeToGoOn) {
  announcer.ask(wait_, kStart + 5s);
  announcer.on_waiting(peers[1], Waiting{2, 0});
  hear(1, 10s - 1ms);
  announcer.on_waiting(peers[1], Waiting{-1, 0});
  judge.time_out(wait_, kStart + 10s);
  EXPECT_EQ(wait_.deadline, kStart + 10s + 600ms);
  hear(1, 10s + 100ms);
  judge.time_out(wait_, wait_.deadline);
  EXPECT_EQ(wait_.deadline, kStart + 11s);
  EXPECT_FALSE(consensus.failed());
  EXPECT_EQ(time_out_after(11s).suspect, 1);
}

TEST_F(Judged, WhoseOwnWaitHasBeenOverForASecondHasHadItsTime) {
  announcer.ask(wait_, kStart + 5s);
  announcer.on_waiting(peers[1], Waiting{2, 0});
  hear(1, 9s);
  announcer.on_waiting(peers[1], Waiting{-1, 0});
  EXPECT_EQ(time_out_after(10s).suspect, 1);
}

TEST_F(Judged, AnAcknowledgementMayTakeHalfASecond) {
  announcer.ask(wait_, kStart + 5s);
  announcer.on_waiting(peers[1], Waiting{0, 0});
  hear(1, 6s);
  judge.time_out(wait_, kStart + 10s);
  links.control(1).unacknowledged_bytes = 100;
  hear(1, 10s + 100ms);
  judge.time_out(wait_, kStart + 10s + 400ms);
  EXPECT_FALSE(consensus.failed());
  EXPECT_TRUE(says(time_out_after(11s), "its machine has acknowledged nothing"));
}

TEST_F(Judged, InACircleWhoAcknowledgesNothingIsToBlameAtOnce) {
  links.control(2).unacknowledged_bytes = 1;
  announcer.on_waiting(peers[1], Waiting{2, 0});
  announcer.on_waiting(peers[2], Waiting{0, 0});
  announcer.ask(wait_, kStart + 5s);
  hear(1, 6s);
  hear(2, 6s);
  expect_blamed(
      time_out_after(10s), 2,
      "; rank 2 is heard, but its machine has acknowledged nothing that rank 0 has sent for 5000 ms");
}

// Another rank has used up the step's time before this wait began.
TEST_F(Judged, WhoComesLateToItsWaitAsksBeforeItBlames) {
  judge.time_out(wait_, kStart + 10s);
  EXPECT_EQ(wait_.asked_at, kStart + 10s);
  EXPECT_EQ(wait_.deadline, kStart + 10s + 600ms);
  (void)links.said_to(1);
  judge.time_out(wait_, wait_.deadline);
  EXPECT_EQ(wait_.deadline, kStart + 11s);
  EXPECT_EQ(links.said_to(1), Said{(Waiting{1, 0})}) << "by now they know who acknowledges nothing";
  EXPECT_FALSE(consensus.failed());
  EXPECT_TRUE(says(time_out_after(11s), "; rank 1 answers nothing"));
}

// Who was asked nearly a second ago has had no time after the deadline yet.
TEST_F(Judged, ACircleGetsItsTimeWhereTheWaitBeganALittleLate) {
  announcer.ask(wait_, kStart + 10s - 990ms);
  announcer.on_waiting(peers[1], Waiting{0, 0});
  judge.time_out(wait_, kStart + 10s);
  EXPECT_EQ(wait_.deadline, kStart + 10s + 10ms);
  hear(1, 10s);
  judge.time_out(wait_, wait_.deadline);
  EXPECT_EQ(wait_.deadline, kStart + 10s + 610ms);
  EXPECT_FALSE(consensus.failed());
}

TEST_F(Judged, ACircleGetsNoSecondTimeAfterALateWait) {
  announcer.on_waiting(peers[1], Waiting{0, 0});
  judge.time_out(wait_, kStart + 10s);
  hear(1, 10s + 100ms);
  judge.time_out(wait_, wait_.deadline);
  EXPECT_FALSE(consensus.failed());
  EXPECT_TRUE(says(time_out_after(11s), "the ranks wait for each other in a circle"));
}

// It wakes up after its deadline, and its neighbour waits for it: what the others say of it is in flight.
TEST_F(Judged, ARankThatWasFrozenDoesNotBlameWhoWaitsForIt) {
  announcer.on_waiting(peers[1], Waiting{0, 0});
  judge.time_out(wait_, kStart + 20s);
  EXPECT_FALSE(consensus.failed());
  EXPECT_EQ(wait_.asked_at, kStart + 20s);
  links.say(2, Abort{{ErrorCode::kTimeout, "it is frozen", 0}, 2});
  control.read(peers[2]);
  EXPECT_EQ(consensus.failure().suspect, 0);
}

TEST_F(Judged, SilenceIsSaidAndTheOthersDoNotWaitForIt) {
  announcer.ask(wait_, kStart + 5s);
  (void)links.said_to(2);
  const Error error = time_out_after(10s);
  EXPECT_TRUE(says(error, "; rank 1 answers nothing, so it is frozen or cut off; see")) << error.message;
  RankSet silent(3);
  silent.add(1);
  EXPECT_EQ(links.said_to(2).back(), ControlMessage(Verdict{0, silent}));
}

TEST_F(Judged, ARankThatAnswersIsNotSilent) {
  announcer.ask(wait_, kStart + 5s);
  (void)links.said_to(2);
  hear(1, 6s);
  EXPECT_TRUE(says(time_out_after(10s), "frozen, stuck or busy"));
  EXPECT_EQ(links.said_to(2).back(), ControlMessage(Verdict{0, RankSet(3)}));
}

TEST_F(Judged, WhoAnswersAndHasNotArrivedIsLate) {
  (void)steps.arrive(1);
  announcer.ask(wait_, kStart + 5s);
  hear(1, 6s);
  EXPECT_TRUE(says(time_out_after(10s), "it answers, but has not arrived at this step"));
}

TEST_F(Judged, AMachineThatAcknowledgesNothingIsOutOfReach) {
  links.control(1).unacknowledged_bytes = 1;
  announcer.on_waiting(peers[1], Waiting{2, 0});
  announcer.ask(wait_, kStart + 5s);
  const Error error = time_out_after(10s);
  EXPECT_EQ(error.suspect, 1) << "it may wait for what does not arrive";
  EXPECT_TRUE(says(error,
                   "rank 1 answers nothing, and its machine has acknowledged nothing that rank 0 has "
                   "sent for 5000 ms"))
      << error.message;
}

TEST_F(Judged, TheAwaitedMessageIsNamed) {
  receive_.kind = Operation::Kind::kSend;
  announcer.ask(wait_, kStart + 5s);
  EXPECT_TRUE(says(time_out_after(10s), "for rank 1 to take a message; "));
}

TEST_F(Judged, NoTimeIsAddedWithoutAnArrivalTimeout) {
  EXPECT_FALSE(judge.extend(wait_, kStart + 10s));
}

TEST_F(Judged, ALateRankHasTimeAsLongAsItAnswers) {
  judge.set_arrival_timeout(60s);
  (void)steps.arrive(1);
  // It is asked only now, and has a second to answer.
  EXPECT_TRUE(judge.extend(wait_, kStart + 10s));
  EXPECT_EQ(wait_.deadline, kStart + 11s);
  hear(1, 10500ms);
  EXPECT_TRUE(judge.extend(wait_, kStart + 11s));
  EXPECT_EQ(wait_.deadline, kStart + 21s);
  EXPECT_EQ(wait_.asked_at, kStart + 11s) << "it is asked again";
  hear(1, 20s);
  // It has arrived since: its messages get their time, once.
  peers[1].place = 1;
  EXPECT_TRUE(judge.extend(wait_, kStart + 21s));
  EXPECT_EQ(wait_.deadline, kStart + 31s);
  hear(1, 30s);
  EXPECT_FALSE(judge.extend(wait_, kStart + 31s));
}

TEST_F(Judged, ALateRankThatDoesNotAnswerHasNoMoreTime) {
  judge.set_arrival_timeout(60s);
  (void)steps.arrive(1);
  EXPECT_TRUE(judge.extend(wait_, kStart + 10s));
  EXPECT_FALSE(judge.extend(wait_, kStart + 11s));
}

TEST_F(Judged, TheArrivalTimeoutIsTheWholeWait) {
  judge.set_arrival_timeout(15s);
  (void)steps.arrive(1);
  announcer.ask(wait_, kStart + 5s);
  hear(1, 6s);
  EXPECT_TRUE(judge.extend(wait_, kStart + 10s));
  EXPECT_EQ(wait_.deadline, kStart + 15s);
  hear(1, 14s);
  EXPECT_FALSE(judge.extend(wait_, kStart + 15s));
}

TEST_F(Judged, NobodyHasTimeInACircle) {
  judge.set_arrival_timeout(60s);
  announcer.on_waiting(peers[1], Waiting{0, 0});
  EXPECT_FALSE(judge.extend(wait_, kStart + 10s));
}

TEST_F(Judged, AWaitForOneThatHasLeftIsHopeless) {
  EXPECT_EQ(judge.hopeless(wait_), nullptr);
  peers[1].said_goodbye = true;
  EXPECT_EQ(judge.hopeless(wait_), nullptr) << "what it sent may still come";
  peers[1].receive_ended = true;
  EXPECT_EQ(judge.hopeless(wait_), &peers[1]);
  judge.blame_left(peers[1]);
  EXPECT_TRUE(says(consensus.failure(), "rank 1 left in good order while rank 0 still waits for it"));
}

// Among several operations the first counts; but an optional rank that has left ends the wait at once.
TEST_F(Judged, AnOptionalRankThatHasLeftIsHopelessAtAnyStep) {
  Operation& other = post(2);
  const std::array handles{Handle{receive_.handle}, Handle{other.handle}};
  wait_.others = handles;
  peers[2].said_goodbye = peers[2].receive_ended = true;
  EXPECT_EQ(judge.hopeless(wait_), nullptr);
  membership.set_optional(std::array{2});
  EXPECT_EQ(judge.hopeless(wait_), &peers[2]);
  wait_.others = {};
}

TEST_F(Judged, StreamsThatEndAreExplained) {
  judge.blame_broken(peers[1], ECONNRESET);
  EXPECT_TRUE(says(consensus.failure(), "the connection to rank 1 broke (")) << consensus.failure().message;
  MeshParts cut;
  cut.judge.blame_broken(cut.peers[1], 0);
  EXPECT_TRUE(says(cut.consensus.failure(), "was cut while its control connection still stands"));
  MeshParts killed;
  killed.links.control(1).ended = true;
  killed.peers[1].control.begin_reading();
  EXPECT_EQ(killed.peers[1].control.front(), nullptr);
  killed.judge.blame_broken(killed.peers[1], 0);
  EXPECT_TRUE(says(killed.consensus.failure(), "rank 1 closed its connection without a farewell"));
  MeshParts odd;
  odd.judge.blame_broken(odd.peers[1], EPROTO);
  EXPECT_EQ(odd.consensus.failure().code, ErrorCode::kCorrupt);
  EXPECT_EQ(odd.consensus.failure().suspect, 1);
  EXPECT_TRUE(says(odd.consensus.failure(), "rank 1 has written nonsense into the memory"));
}

TEST_F(Judged, AnOptionalRankIsAskedBeforeItDeparts) {
  membership.set_optional(std::array{1});
  judge.time_out(wait_, kStart + 10s);
  EXPECT_EQ(wait_.asked_at, kStart + 10s);
  EXPECT_EQ(wait_.deadline, kStart + 11s);
  EXPECT_FALSE(peers[1].departure);
  judge.time_out(wait_, kStart + 11s);
  ASSERT_TRUE(peers[1].departure);
  EXPECT_TRUE(says(*peers[1].departure, "rank 1 answers nothing, so it is frozen or cut off"));
  EXPECT_FALSE(consensus.failed());
  EXPECT_TRUE(receive_.failed);
}

TEST_F(Judged, AnOptionalRankOfACircleGetsNoSecondTimeAfterALateWait) {
  membership.set_optional(std::array{1});
  announcer.on_waiting(peers[1], Waiting{0, 0});
  judge.time_out(wait_, kStart + 10s);
  hear(1, 10s + 100ms);
  judge.time_out(wait_, kStart + 11s);
  EXPECT_TRUE(peers[1].departure);
}

// All silent optional ranks depart together, and those that answer stay.
TEST_F(Judged, WithTheRankThatIsBlamedDepartAllThatAnswerNothing) {
  MeshParts rank(0, 5);
  rank.membership.set_optional(std::array{1, 2, 3});
  std::array<Handle, 4> handles{};
  for (std::size_t i = 0; i < handles.size(); ++i) {
    handles[i] = Handle{rank.post(static_cast<int>(i) + 1).handle};
  }
  ListedWaiter listed(rank.waiters, *rank.operations.find(handles[0]), kStart, kStart + 10s);
  listed.waiter.others = handles;
  rank.announcer.ask(listed.waiter, kStart + 5s);
  rank.peers[3].heard_at = kStart + 6s;
  rank.judge.time_out(listed.waiter, kStart + 10s);
  EXPECT_TRUE(rank.peers[1].departure && rank.peers[2].departure);
  EXPECT_FALSE(rank.peers[3].departure) << "it answers";
  EXPECT_FALSE(rank.peers[4].departure) << "it is required";
  EXPECT_FALSE(rank.consensus.failed());
  listed.waiter.others = {};
}

// It decides nothing: it continues to wait, but not forever.
TEST_F(Judged, AnOptionalRankWaitsForOthersToDecide) {
  MeshParts rank(2, 3);
  rank.membership.set_optional(std::array{1, 2});
  ListedWaiter listed(rank.waiters, rank.post(1), kStart, kStart + 10s);
  Deadline now = kStart + 10s;
  for (int again = 0; again < 3; ++again) {
    rank.announcer.ask(listed.waiter, now - 5s);
    rank.peers[1].heard_at = now;
    rank.judge.time_out(listed.waiter, now);
    EXPECT_FALSE(rank.consensus.failed() || rank.peers[1].departure) << again;
    EXPECT_EQ(listed.waiter.deadline, now + 10s);
    now += 10s;
  }
  rank.announcer.ask(listed.waiter, now - 5s);
  rank.peers[1].heard_at = now;
  rank.judge.time_out(listed.waiter, now);
  EXPECT_TRUE(rank.consensus.failed());
}

// Ranks 0 and 3 wait for each other, and this rank for `awaited`, until its deadline.
void wait_for_a_circle(MeshParts& rank, int awaited) {
  rank.membership.set_optional(std::array{2, 3});
  rank.announcer.on_waiting(rank.peers[0], Waiting{3, 0});
  rank.announcer.on_waiting(rank.peers[3], Waiting{0, 0});
  ListedWaiter listed(rank.waiters, rank.post(awaited), kStart, kStart + 10s);
  rank.announcer.ask(listed.waiter, kStart + 5s);
  for (const int each : {0, 2, 3}) {
    if (each != rank.peers.self()) rank.peers[each].heard_at = kStart + 6s;
  }
  rank.judge.time_out(listed.waiter, kStart + 10s);
  EXPECT_FALSE(rank.consensus.failed() || rank.peers[3].departure) << "they have time to say what they know";
  for (const int each : {0, 2, 3}) {
    if (each != rank.peers.self()) rank.peers[each].heard_at = kStart + 10s + 100ms;
  }
  rank.judge.time_out(listed.waiter, listed.waiter.deadline);
  rank.judge.time_out(listed.waiter, kStart + 11s);
}

TEST_F(Judged, AnOptionalRankLetsTheOthersOpenACircle) {
  MeshParts rank(2, 4);
  wait_for_a_circle(rank, 0);
  EXPECT_FALSE(rank.consensus.failed() || rank.peers[3].departure);
}

TEST_F(Judged, TheOptionalRankOfACircleDepartsAndNotOneThatWaitsForIt) {
  MeshParts rank(1, 4);
  rank.announcer.on_waiting(rank.peers[2], Waiting{0, 0});
  wait_for_a_circle(rank, 2);
  EXPECT_FALSE(rank.consensus.failed() || rank.peers[2].departure);
  EXPECT_TRUE(rank.peers[3].departure);
}

}  // namespace
}  // namespace deltawire::test::failure_judge_test
