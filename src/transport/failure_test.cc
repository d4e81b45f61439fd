// Failures between ranks as threads, and which rank is blamed.
#include <atomic>

#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::failure_test {
namespace {

class Failure : public ::testing::TestWithParam<MeshKind> {};
INSTANTIATE_TEST_SUITE_P(Meshes, Failure, ::testing::ValuesIn(tested_meshes()), mesh_kind_name);

TEST_P(Failure, AMessageLongerThanItsBufferIsALimitAndIsNotWritten) {
  for (const std::size_t length : {101ul, 5000ul, 500000ul}) {
    for (const bool early : {false, true}) {
      Ranks ranks = connect_ranks(GetParam(), 3);
      const std::vector<std::byte> bytes = pattern(length, 1);
      std::vector<std::byte> guarded(length + 200, std::byte{0xA5});
      Handle receive = Handle::kNone;
      if (!early) receive = ranks[1]->post_recv(0, 4, MutBytes(guarded).first(100));
      send_and_forget(*ranks[0], 1, 4, bytes);
      if (early) {
        while (ranks[1]->traffic().bytes_received < 32) std::this_thread::sleep_for(1ms);
        receive = ranks[1]->post_recv(0, 4, MutBytes(guarded).first(100));
      }
      testing::expect_refused(ranks[1]->wait(receive, soon()), ErrorCode::kLimit, 0);
      for (const std::byte value : guarded) ASSERT_EQ(value, std::byte{0xA5});
      // The third rank learns it too.
      std::vector<std::byte> other(10);
      const auto elsewhere = ranks[2]->wait(ranks[2]->post_recv(1, 1, other), soon());
      testing::expect_refused(elsewhere, ErrorCode::kLimit, 0);
    }
  }
}

TEST_P(Failure, AChainOfWaitsNamesItsEnd) {
  Ranks ranks = connect_ranks(GetParam(), 4);
  // 0 waits for 1, 1 for 2, 2 for 3, and 3 does nothing at all. The deadlines differ, the middle ones are
  // the longest, so that it takes their announcements to find the end.
  const std::chrono::milliseconds patience[] = {4000ms, 20s, 20s};
  std::atomic<int> named{0};
  run_ranks(3, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(700ms);  // starts to wait later than the others
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    std::vector<std::byte> got(10);
    testing::expect_refused(self.wait(self.post_recv(rank + 1, 1, got), in(patience[rank])),
                            ErrorCode::kTimeout, 3, {"rank 1 waits for rank 2"});
    ++named;
  });
  EXPECT_EQ(named, 3);
}

TEST_P(Failure, ACircleOfWaitsIsCalledOne) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  run_ranks(3, [&](int rank) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    std::vector<std::byte> got(10);
    const auto result = self.wait(self.post_recv((rank + 1) % 3, 1, got), in(4s));
    testing::expect_refused(result, ErrorCode::kTimeout);
    EXPECT_NE(result.error().suspect, kNoSuspect);
    EXPECT_TRUE(has(result.error(), "circle")) << result.error().message;
  });
}

TEST_P(Failure, AnEndedWaitIsNoLongerHeldAgainstAnyone) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  const std::vector<std::byte> bytes = pattern(10, 1);
  std::thread middle([&] {
    // Announced at half time, then over; rank 1 goes on to be busy, and is the one to blame.
    std::vector<std::byte> got(10);
    EXPECT_TRUE(ranks[1]->wait(ranks[1]->post_recv(2, 1, got), in(5s)).has_value());
  });
  std::this_thread::sleep_for(3s);
  const Handle sent = send_bytes(*ranks[2], 1, 1, bytes);
  EXPECT_TRUE(ranks[2]->wait(sent, soon()).has_value());
  middle.join();
  std::vector<std::byte> got(10);
  const auto result = ranks[0]->wait(ranks[0]->post_recv(1, 1, got), in(500ms));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().suspect, 1) << result.error().message;
}

TEST_P(Failure, ASendThatNobodyTakesTimesOut) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  // More than the sockets and the unexpected messages can hold.
  const std::vector<std::byte> bytes(std::size_t{100} << 20);
  testing::expect_refused(ranks[0]->wait(send_bytes(*ranks[0], 1, 1, bytes), in(2s)), ErrorCode::kTimeout, 1);
}

TEST_P(Failure, AnAbortReachesEveryWaitAtOnce) {
  Ranks ranks = connect_ranks(GetParam(), 4);
  const Deadline start = Clock::now();
  run_ranks(4, [&](int rank) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    if (rank == 2) {
      std::this_thread::sleep_for(100ms);
      self.abort({ErrorCode::kNotFinite, "element 7 is NaN", kNoSuspect});
      self.abort({ErrorCode::kAborted, "too late to count", 0});
    }
    std::vector<std::byte> got(10);
    const auto result = self.wait(self.post_recv((rank + 1) % 4, 1, got), soon());
    testing::expect_refused(result, ErrorCode::kNotFinite, 2, {"element 7 is NaN"});
    EXPECT_EQ(has(result.error(), "rank 2 reports"), rank != 2);
  });
  EXPECT_LT(Clock::now() - start, 25s);
}

TEST_P(Failure, AnAbortOvertakesUnclaimedData) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  const std::vector<std::byte> bytes(std::size_t{80} << 20);
  send_and_forget(*ranks[0], 1, 1, bytes);
  ranks[0]->abort({ErrorCode::kAborted, "enough", kNoSuspect});
  std::vector<std::byte> got(10);
  const auto result = ranks[1]->wait(ranks[1]->post_recv(0, 2, got), soon());
  EXPECT_EQ(result.error().code, ErrorCode::kAborted);
}

TEST_P(Failure, AnAborterThatLeavesIsNotBlamedForLeaving) {
  for (int round = 0; round < 10; ++round) {
    Ranks ranks = connect_ranks(GetParam(), 3);
    ranks[1]->abort({ErrorCode::kCorrupt, "bad frame", 0});
    ranks[1].reset();
    for (const std::size_t rank : {0u, 2u}) {
      std::vector<std::byte> got(10);
      testing::expect_refused(ranks[rank]->wait(ranks[rank]->post_recv(1, 1, got), soon()),
                              ErrorCode::kCorrupt, 0);
    }
  }
}

TEST_P(Failure, WaitingForARankThatLeftInGoodOrder) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  std::vector<std::byte> got(10);
  const Handle receive = ranks[0]->post_recv(1, 1, got);
  ranks[1].reset();
  testing::expect_refused(ranks[0]->wait(receive, soon()), ErrorCode::kPeerLost, 1, {"left"});
}

TEST_P(Failure, ALeavingRankDoesNotDisturbTheOthers) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  ranks[2].reset();
  std::this_thread::sleep_for(50ms);
  const std::vector<std::byte> bytes = pattern(5000, 1);
  std::vector<std::byte> got(5000);
  send_and_forget(*ranks[0], 1, 1, bytes);
  EXPECT_TRUE(ranks[1]->wait(ranks[1]->post_recv(0, 1, got), soon()).has_value());
  EXPECT_TRUE(same_bytes(got, bytes));
}

TEST_P(Failure, AfterAnErrorNoBufferIsTouched) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  const std::vector<std::byte> ones(1000000, std::byte{1});
  std::vector<std::byte> got(ones.size());
  const Handle receive = ranks[1]->post_recv(0, 1, got);
  std::atomic<bool> stop{false};
  std::thread sender([&] {
    while (!stop && ranks[0]->wait(send_bytes(*ranks[0], 1, 1, ones), soon())) {
    }
  });
  ranks[1]->abort({ErrorCode::kAborted, "enough", kNoSuspect});
  EXPECT_FALSE(ranks[1]->wait(receive, soon()).has_value());
  std::fill(got.begin(), got.end(), std::byte{9});
  std::this_thread::sleep_for(100ms);
  for (const std::byte value : got) ASSERT_EQ(value, std::byte{9});
  stop = true;
  sender.join();
}

TEST_P(Failure, AFailedTransportStaysFailed) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  ranks[0]->abort({ErrorCode::kAborted, "enough", kNoSuspect});
  const std::vector<std::byte> bytes(10);
  std::vector<std::byte> got(10);
  EXPECT_EQ(ranks[0]->wait(send_bytes(*ranks[0], 1, 1, bytes), soon()).error().code, ErrorCode::kAborted);
  EXPECT_EQ(ranks[0]->wait(ranks[0]->post_recv(1, 1, got), soon()).error().code, ErrorCode::kAborted);
  EXPECT_EQ(ranks[0]->wait(Handle::kNone, soon()).error().code, ErrorCode::kAborted);
}

TEST_P(Failure, NothingSpinsWhateverTheStateOfTheMesh) {
  Ranks idle = connect_ranks(GetParam(), 3);
  Ranks held_back = connect_ranks(GetParam(), 2);  // a send that nobody takes
  const std::vector<std::byte> bytes(std::size_t{70} << 20);
  send_and_forget(*held_back[0], 1, 1, bytes);
  Ranks left = connect_ranks(GetParam(), 3);
  left[0].reset();
  Ranks failed = connect_ranks(GetParam(), 3);
  failed[0]->abort({ErrorCode::kAborted, "enough", kNoSuspect});
  failed[0].reset();
  EXPECT_TRUE(comes_to_rest(CLOCK_PROCESS_CPUTIME_ID));
  held_back[0]->abort({ErrorCode::kAborted, "so that its end needn't flush", kNoSuspect});
}

TEST_P(Failure, APeerThatDoesNotExistIsAnArgumentError) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  std::vector<std::byte> got(10);
  EXPECT_EQ(ranks[0]->wait(ranks[0]->post_recv(2, 1, got), soon()).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(ranks[1]->wait(ranks[1]->post_recv(1, 1, got), soon()).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace deltawire::test::failure_test
