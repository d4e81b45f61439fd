// Unit tests of WaitLoop: the waiting thread is the only one.
#include <array>

#include "transport/mesh/engine.h"
#include "transport/mesh/mesh_parts_testing.h"
#include "transport/message_testing.h"

namespace deltawire::test::wait_loop_test {
namespace {

using namespace std::chrono_literals;

// Rank 0 of three.
class Waits : public ::testing::Test, protected MeshParts {
 protected:
  Operation& post_receive(int rank, Tag tag) {
    Operation& posted = post(rank);
    posted.tag = tag;
    posted.capacity = got_;
    streams.post_receive(lock_, peers[rank], posted);
    return posted;
  }
  void send_from(int rank, Tag tag) {
    const auto bytes = pattern(100, tag);
    links.data(rank).add(encode_message_header({tag, bytes.size()}));
    links.data(rank).add(bytes);
    peers[rank].receive_again = true;  // these links have no descriptor that says so
  }

  Driver::Lock lock_{mutex};
  std::vector<std::byte> got_ = std::vector<std::byte>(100);
};

TEST_F(Waits, ThatHaveEndedDoNothing) {
  Operation& receive = post_receive(1, 5);
  receive.done = true;
  Waiter waiter{.operation = &receive, .deadline = Clock::now() - 1s};
  wait_loop.block(lock_, waiter);
  EXPECT_FALSE(consensus.failed());
  EXPECT_EQ(waiter.announce_at, Deadline{}) << "nobody has looked at its time";
}

TEST_F(Waits, DriveUntilTheirMessageIsHere) {
  Operation& receive = post_receive(1, 5);
  send_from(1, 5);
  Waiter waiter{.operation = &receive, .deadline = soon()};
  wait_loop.block(lock_, waiter);
  EXPECT_TRUE(receive.done);
  EXPECT_EQ(got_, pattern(100, 5));
  EXPECT_TRUE(links.said_to(1).empty()) << "so soon, nobody is asked";
  EXPECT_TRUE(waiters.all().empty());
  EXPECT_FALSE(driver.is_driven_by(waiter));
  EXPECT_EQ(receive.waiter, nullptr);
}

TEST_F(Waits, LookAtWhatIsThereBeforeTheyCallItLate) {
  Operation& receive = post_receive(1, 5);
  send_from(1, 5);
  Waiter waiter{.operation = &receive, .deadline = Clock::now() - 1s};
  wait_loop.block(lock_, waiter);
  EXPECT_TRUE(receive.done);
  EXPECT_FALSE(consensus.failed());
}

TEST_F(Waits, AskAtHalfOfTheirTimeAndTakeTheAnnouncementBack) {
  Operation& receive = post_receive(1, 5);
  send_from(1, 5);
  const Deadline now = Clock::now();
  Waiter waiter{.operation = &receive, .deadline = now + 20s, .began_at = now - 30s};
  wait_loop.block(lock_, waiter);
  EXPECT_TRUE(receive.done);
  EXPECT_GE(waiter.asked_at, now);
  EXPECT_EQ(links.said_to(2), (std::vector<ControlMessage>{Waiting{1, 0}, Waiting{-1, 0}}));
}

TEST_F(Waits, FailAtTheirEnd) {
  Operation& receive = post_receive(1, 5);
  Waiter waiter{.operation = &receive, .deadline = Clock::now() - 1s};
  wait_loop.block(lock_, waiter);
  ASSERT_TRUE(consensus.failed());
  EXPECT_EQ(consensus.failure().code, ErrorCode::kTimeout);
  EXPECT_EQ(consensus.failure().suspect, 1);
}

TEST_F(Waits, WhatTheOthersSaidBeforeTheDeadlineComesFirst) {
  Operation& receive = post_receive(1, 5);
  Waiter waiter{.operation = &receive, .deadline = Clock::now() - 1s};
  waiter.looked_at = kNever;
  links.say(2, Abort{{ErrorCode::kNotFinite, "NaN", 2}, 2});
  wait_loop.block(lock_, waiter);
  ASSERT_TRUE(consensus.failed());
  EXPECT_EQ(consensus.failure().code, ErrorCode::kNotFinite);
}

TEST_F(Waits, ForARankThatHasLeftEndAtOnce) {
  Operation& receive = post_receive(1, 5);
  peers[1].said_goodbye = peers[1].receive_ended = true;
  Waiter waiter{.operation = &receive, .deadline = soon()};
  const Deadline began = Clock::now();
  wait_loop.block(lock_, waiter);
  EXPECT_TRUE(says(consensus.failure(), "left in good order"));
  EXPECT_LT(Clock::now() - began, 15s);
}

TEST_F(Waits, ThatAllowAWakeEndWithIt) {
  Operation& receive = post_receive(1, 5);
  const std::array handles{Handle{receive.handle}};
  waiters.wake();
  Waiter waiter{.operation = &receive, .deadline = soon(), .others = handles, .heeds_wake = true};
  wait_loop.block(lock_, waiter);
  EXPECT_FALSE(consensus.failed() || receive.done);
}

}  // namespace
}  // namespace deltawire::test::wait_loop_test
