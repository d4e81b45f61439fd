// Waiting for any of several operations, and being woken.
#include <array>
#include <thread>

#include "base/refusal_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::wait_any_test {
namespace {

class WaitAny : public ::testing::TestWithParam<MeshKind> {};
INSTANTIATE_TEST_SUITE_P(Meshes, WaitAny, ::testing::ValuesIn(tested_meshes()), mesh_kind_name);

TEST_P(WaitAny, ReturnsWithTheFirstThatEndsAndForgetsNone) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  const auto bytes = pattern(1000, 1);
  std::array<std::vector<std::byte>, 2> got{std::vector<std::byte>(1000), std::vector<std::byte>(1000)};
  const std::array handles{ranks[0]->post_recv(1, 5, got[0]), ranks[0]->post_recv(2, 5, got[1])};
  EXPECT_FALSE(ranks[0]->done(handles[0]));
  EXPECT_FALSE(ranks[0]->done(handles[1]));
  const Handle sent = send_bytes(*ranks[2], 0, 5, bytes);
  // Rank 1 sends nothing: only the second can end.
  ASSERT_TRUE(ranks[0]->wait_any(handles, soon()));
  EXPECT_FALSE(ranks[0]->done(handles[0]));
  EXPECT_TRUE(ranks[0]->done(handles[1]));
  ASSERT_TRUE(ranks[0]->wait_any(handles, soon())) << "one of them has ended already";
  EXPECT_EQ(ranks[0]->wait(handles[1], soon()).value(), 1000u);
  EXPECT_TRUE(got[1] == bytes);
  EXPECT_TRUE(ranks[0]->done(handles[1])) << "waited for";
  EXPECT_TRUE(ranks[0]->done(Handle::kNone));
  EXPECT_TRUE(ranks[2]->wait(sent, soon()));
}

TEST_P(WaitAny, ReturnsAtOnceForNothing) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  std::vector<std::byte> got(10);
  EXPECT_TRUE(ranks[0]->wait_any({}, soon()));
  const std::array handles{ranks[0]->post_recv(1, 5, got), Handle::kNone};
  EXPECT_TRUE(ranks[0]->wait_any(handles, soon()));
}

TEST_P(WaitAny, OneWakeEndsOneWait) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  std::vector<std::byte> got(10);
  const Handle never = ranks[0]->post_recv(1, 5, got);
  ranks[0]->wake();  // before the wait
  EXPECT_TRUE(ranks[0]->wait_any(std::span(&never, 1), soon()));
  std::thread waker([&] { ranks[0]->wake(); });  // before or while
  EXPECT_TRUE(ranks[0]->wait_any(std::span(&never, 1), soon()));
  waker.join();
  EXPECT_FALSE(ranks[0]->done(never));
  testing::expect_refused(ranks[0]->wait_any(std::span(&never, 1), in(2s)), ErrorCode::kTimeout);
}

TEST_P(WaitAny, TheFirstIsBlamedAtTheDeadline) {
  Ranks ranks = connect_ranks(GetParam(), 3);
  std::array<std::vector<std::byte>, 2> got{std::vector<std::byte>(8), std::vector<std::byte>(8)};
  const std::array handles{ranks[0]->post_recv(2, 5, got[0]), ranks[0]->post_recv(1, 5, got[1])};
  const auto late = ranks[0]->wait_any(handles, in(2s));
  testing::expect_refused(late, ErrorCode::kTimeout);
  EXPECT_EQ(late.error().suspect, 2) << late.error().message;
  EXPECT_TRUE(ranks[0]->done(handles[0])) << "failed";
  EXPECT_FALSE(ranks[0]->wait(handles[1], soon()));
}

TEST_P(WaitAny, EndsWithAnAbortElsewhere) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  std::vector<std::byte> got(10);
  const Handle never = ranks[0]->post_recv(1, 5, got);
  std::thread aborter([&] { ranks[1]->abort({ErrorCode::kAborted, "enough", 1}); });
  const auto ended = ranks[0]->wait_any(std::span(&never, 1), soon());
  aborter.join();
  testing::expect_refused(ended, ErrorCode::kAborted);
  EXPECT_EQ(ended.error().suspect, 1);
}

TEST_P(WaitAny, TwoThreadsCantWaitForOneOperation) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  std::vector<std::byte> got(10);
  const Handle shared = ranks[0]->post_recv(1, 5, got);
  Status outcome;
  std::thread other([&] { outcome = ranks[0]->wait_any(std::span(&shared, 1), soon()); });
  // Whichever comes second is refused; the other goes on until the message is there.
  const auto own = ranks[0]->wait_any(std::span(&shared, 1), in(2s));
  if (!own && own.error().code == ErrorCode::kState) {
    const Handle sent = send_bytes(*ranks[1], 0, 5, pattern(10, 3));
    EXPECT_TRUE(ranks[1]->wait(sent, soon()));
    other.join();
    EXPECT_TRUE(outcome);
  } else {
    other.join();
    testing::expect_refused(outcome, ErrorCode::kState);
  }
}

}  // namespace
}  // namespace deltawire::test::wait_any_test
