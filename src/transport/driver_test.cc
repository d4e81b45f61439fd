// Which thread moves the bytes: waiting threads, or the I/O thread if none waits; and several at once.
#include <thread>

#include "transport/mesh_testing.h"

namespace deltawire::test::driver_test {
namespace {

class Driver : public ::testing::TestWithParam<MeshKind> {};
INSTANTIATE_TEST_SUITE_P(Meshes, Driver, ::testing::ValuesIn(tested_meshes()), mesh_kind_name);

// Longer than any wait after which the I/O thread sleeps deeply.
constexpr auto kLongWait = 30ms;

void expect_message(Transport& self, int from, Tag tag, std::size_t length) {
  std::vector<std::byte> got(length);
  EXPECT_TRUE(self.wait(self.post_recv(from, tag, got), soon()).has_value());
  EXPECT_TRUE(same_bytes(got, pattern(length, tag)));
}

TEST_P(Driver, BytesMoveWhenNobodyWaitsAnyMore) {
  for (const std::size_t length : {std::size_t{1000}, std::size_t{3} << 20}) {
    Ranks ranks = connect_ranks(GetParam(), 2);
    const auto bytes = pattern(length, 1);
    for (const auto wait : {0ms, std::chrono::milliseconds(kLongWait)}) {
      std::thread other([&] {
        std::this_thread::sleep_for(wait);
        EXPECT_TRUE(ranks[1]->wait(send_bytes(*ranks[1], 0, 1, bytes), soon()));
      });
      expect_message(*ranks[0], 1, 1, length);
      other.join();
      // Now rank 0 only computes, and looks from time to time.
      std::vector<std::byte> got(length);
      const Handle receive = ranks[0]->post_recv(1, 2, got);
      const Handle sent = send_bytes(*ranks[1], 0, 2, bytes);
      const Deadline until = soon();
      while (!ranks[0]->done(receive) && Clock::now() < until) std::this_thread::sleep_for(1ms);
      ASSERT_TRUE(ranks[0]->done(receive));
      EXPECT_TRUE(ranks[0]->wait(receive, soon()) && ranks[1]->wait(sent, soon()));
      EXPECT_TRUE(same_bytes(got, bytes));
    }
  }
}

TEST_P(Driver, ServesOtherWaitersAndWhatTheyPost) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  std::vector<std::byte> last(10);
  const Handle longest = ranks[0]->post_recv(2, 99, last);
  std::thread driver([&] { EXPECT_TRUE(ranks[0]->wait(longest, soon())); });
  std::this_thread::sleep_for(5ms);  // mostly it drives now
  std::vector<std::thread> others;
  for (const int from : {1, 2}) {
    others.emplace_back([&ranks, from] {
      for (Tag tag = 0; tag < 20; ++tag) {
        const std::size_t length = tag % 4 == 3 ? std::size_t{3} << 20 : 100 * tag;
        const auto bytes = pattern(length, tag);
        const Handle there = send_bytes(*ranks[0], from, tag, bytes);
        const Handle back = send_bytes(*ranks[static_cast<std::size_t>(from)], 0, tag, bytes);
        expect_message(*ranks[static_cast<std::size_t>(from)], 0, tag, length);
        expect_message(*ranks[0], from, tag, length);
        EXPECT_TRUE(ranks[0]->wait(there, soon()));
        EXPECT_TRUE(ranks[static_cast<std::size_t>(from)]->wait(back, soon()));
      }
    });
  }
  for (std::thread& other : others) other.join();
  send_and_forget(*ranks[2], 0, 99, last);
  driver.join();
}

TEST_P(Driver, HearsOfAnAbortOfItsOwnRank) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  std::vector<std::byte> got(10);
  const Handle never = ranks[0]->post_recv(1, 1, got);
  std::thread aborter([&] {
    std::this_thread::sleep_for(kLongWait);
    ranks[0]->abort({ErrorCode::kAborted, "enough", kNoSuspect});
  });
  const Deadline start = Clock::now();
  const auto ended = ranks[0]->wait(never, soon());
  aborter.join();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::kAborted);
  EXPECT_LT(Clock::now() - start, 25s);
}

TEST_P(Driver, HearsOfAWake) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  std::vector<std::byte> got(10);
  const Handle never = ranks[0]->post_recv(1, 1, got);
  std::thread waker([&] {
    std::this_thread::sleep_for(kLongWait);
    ranks[0]->wake();
  });
  const Deadline start = Clock::now();
  EXPECT_TRUE(ranks[0]->wait_any(std::span(&never, 1), soon()));
  waker.join();
  EXPECT_LT(Clock::now() - start, 25s);
}

// An unexpected message that is so long that it first waits in its stream for a receive.
TEST_P(Driver, ALongMessageIsTakenWithoutAReceive) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  const auto bytes = pattern(std::size_t{20} << 20, 3);
  EXPECT_TRUE(ranks[1]->wait(send_bytes(*ranks[1], 0, 3, bytes), soon()));
  expect_message(*ranks[0], 1, 3, bytes.size());
}

// A waiter reads what has arrived before it calls a message late: no other thread may have read it.
TEST(WhatIsThere, IsNotLate) {
  Ranks ranks = connect_ranks(MeshKind::kInproc, 2);
  const auto bytes = pattern(100, 1);
  send_and_forget(*ranks[1], 0, 1, bytes);
  expect_message(*ranks[0], 1, 1, 100);  // and rank 0's I/O thread rests a little
  EXPECT_TRUE(ranks[1]->wait(send_bytes(*ranks[1], 0, 2, bytes), soon()));
  std::vector<std::byte> got(100);
  const auto ended = ranks[0]->wait(ranks[0]->post_recv(1, 2, got), Clock::now());
  EXPECT_TRUE(ended) << ended.error().message;
}

}  // namespace
}  // namespace deltawire::test::driver_test
