// The contract of Transport, between processes over MPI.
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "mpi_world.h"
#include "transport/message_testing.h"

namespace deltawire::test {
namespace {

constexpr std::size_t kLengths[] = {0, 1, 24, 4096, 65536, 131040, 131072, 300000, 1200000};

TEST(Exchange, RandomMessagesArriveWholeAndInOrder) {
  const auto self = connect_world();
  std::mt19937_64 random(31);
  for (int round = 0; round < 4; ++round) {
    const std::vector<Planned> plan = plan_messages(self->world_size(), kLengths, 20, random);
    play(*self, plan, static_cast<std::uint64_t>(self->rank() * 100 + round));
  }
}

TEST(Exchange, TwoMeshesOfTheSameRanksDoNotMeet) {
  const auto first = connect_world();
  const auto second = connect_world();
  std::mt19937_64 random(32);
  const std::vector<Planned> one = plan_messages(first->world_size(), kLengths, 20, random);
  const std::vector<Planned> other = plan_messages(first->world_size(), kLengths, 20, random);
  const auto seed = static_cast<std::uint64_t>(first->rank());
  std::thread thread([&] { play(*first, one, seed); });
  play(*second, other, seed + 50);
  thread.join();
}

TEST(Exchange, EarlyMessagesWaitForTheirReceives) {
  const auto self = connect_world();
  if (self->world_size() < 2) GTEST_SKIP() << "needs 2 ranks";
  constexpr std::uint64_t kMessages = 40;
  if (self->rank() == 0) {
    std::vector<std::vector<std::byte>> sent;
    std::vector<Handle> handles;
    for (std::uint64_t i = 0; i < kMessages; ++i) sent.push_back(pattern(30000 + i, i));
    for (std::uint64_t i = 0; i < kMessages; ++i) handles.push_back(send_bytes(*self, 1, i, sent[i]));
    // Rank 1 hasn't posted a receive, and yet all are taken off this rank's hands.
    for (const Handle handle : handles) ASSERT_TRUE(self->wait(handle, soon()).has_value());
    const std::vector<std::byte> go(1);
    ASSERT_TRUE(self->wait(send_bytes(*self, 1, 1000, go), soon()).has_value());
  }
  if (self->rank() == 1) {
    std::vector<std::byte> go(1);
    ASSERT_TRUE(self->wait(self->post_recv(0, 1000, go), soon()).has_value());
    for (std::uint64_t i = kMessages; i-- > 0;) {
      std::vector<std::byte> got(40000);
      const auto length = self->wait(self->post_recv(0, i, got), soon());
      ASSERT_TRUE(length.has_value()) << length.error().message;
      got.resize(*length);
      EXPECT_TRUE(got == pattern(30000 + i, i));
    }
  }
}

// Waits for something that never comes: how a bystander learns of a failure elsewhere.
Error error_seen_by(Transport& self, Deadline deadline) {
  std::vector<std::byte> never(1);
  const int peer = (self.rank() + 1) % self.world_size();
  const auto result = self.wait(self.post_recv(peer, 999999, never), deadline);
  EXPECT_FALSE(result.has_value());
  return result ? Error{} : result.error();
}

// Returns on `rank`, which is about to fail, when all have connected: the others would hear of it while they
// still connect.
void hear_all(Transport& self, int rank) {
  std::vector<std::byte> got(1);
  if (self.rank() != rank) {
    (void)self.wait(send_bytes(self, rank, 3000, got), soon());
    return;
  }
  for (int peer = 0; peer < self.world_size(); ++peer) {
    if (peer == rank) continue;
    ASSERT_TRUE(self.wait(self.post_recv(peer, 3000, got), soon()).has_value());
  }
}

TEST(Failure, AMessageLongerThanItsBufferIsALimitAndIsNotWritten) {
  for (const std::size_t length : {101ul, 70000ul, 3000000ul}) {
    const auto self = connect_world();
    if (self->world_size() < 2) GTEST_SKIP() << "needs 2 ranks";
    hear_all(*self, 1);
    std::vector<std::byte> guarded(length + 200, std::byte{0xA5});
    const std::vector<std::byte> bytes = pattern(length, 1);
    if (self->rank() == 0) (void)send_bytes(*self, 1, 4, bytes);
    if (self->rank() == 1) {
      testing::expect_refused(self->wait(self->post_recv(0, 4, MutBytes(guarded).first(100)), soon()),
                              ErrorCode::kLimit);
    }
    const Error error = error_seen_by(*self, soon());
    testing::expect_error(error, ErrorCode::kLimit, 0);
    for (const std::byte value : guarded) ASSERT_EQ(value, std::byte{0xA5});
  }
}

TEST(Failure, AMessageAboveTheLimitIsRefusedBeforeItLeaves) {
  const auto self = connect_world();
  if (self->world_size() < 2) GTEST_SKIP() << "needs 2 ranks";
  hear_all(*self, 0);
  if (self->rank() == 0) {
    const std::vector<std::byte> large(std::size_t{1} << 20);
    const std::vector<Bytes> pieces(1025, Bytes(large));
    EXPECT_EQ(self->wait(self->post_send(1, 1, pieces), soon()).error().code, ErrorCode::kLimit);
  }
  EXPECT_EQ(error_seen_by(*self, soon()).code, ErrorCode::kLimit);
}

// Returns when all ranks have come here.
void meet(Transport& self) {
  const std::vector<std::byte> sent(1);
  std::vector<std::byte> got(static_cast<std::size_t>(self.world_size()));
  std::vector<Handle> handles;
  for (int peer = 0; peer < self.world_size(); ++peer) {
    if (peer == self.rank()) continue;
    handles.push_back(self.post_recv(peer, 2000, MutBytes(got).subspan(static_cast<std::size_t>(peer), 1)));
    handles.push_back(send_bytes(self, peer, 2000, sent));
  }
  for (const Handle handle : handles) ASSERT_TRUE(self.wait(handle, soon()).has_value());
}

TEST(Failure, ASilentRankIsNamedByAllAtTheDeadline) {
  const auto self = connect_world();
  const int silent = self->world_size() - 1;
  if (self->world_size() < 2) GTEST_SKIP() << "needs 2 ranks";
  meet(*self);
  std::vector<std::byte> got(10);
  const Deadline begin = Clock::now();
  if (self->rank() == silent) {
    // Its transport answers; the rank itself waits for nobody until all is over.
    const Handle never = self->post_recv(0, 1, got);
    while (!self->done(never) && Clock::now() < begin + std::chrono::seconds(25)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(self->wait(never, soon()).error().code, ErrorCode::kTimeout);
    return;
  }
  // Rank 0's deadline comes first, and by then the others have long begun to wait: a chain to the silent one.
  const Deadline deadline = self->rank() == 0 ? in(std::chrono::seconds(5)) : soon();
  testing::expect_refused(self->wait(self->post_recv(self->rank() + 1, 1, got), deadline),
                          ErrorCode::kTimeout, silent);
  EXPECT_LT(Clock::now() - begin, std::chrono::seconds(25));
}

TEST(Failure, AnAbortReachesEveryWait) {
  const auto self = connect_world();
  if (self->world_size() < 2) GTEST_SKIP() << "needs 2 ranks";
  const int aborter = self->world_size() - 1;
  hear_all(*self, aborter);
  if (self->rank() == aborter) self->abort({ErrorCode::kNotFinite, "element 7 is NaN", kNoSuspect});
  const Error error = error_seen_by(*self, soon());
  testing::expect_error(error, ErrorCode::kNotFinite, aborter, {"element 7 is NaN"});
}

TEST(Failure, OtherSettingsAreNamed) {
  const auto probe = connect_world();
  if (probe->world_size() < 2) GTEST_SKIP() << "needs 2 ranks";
  const bool odd_one = probe->rank() == probe->world_size() - 1;
  const auto transport = connect_with(odd_one ? "3lc:s=1.5" : "3lc:s=1.75");
  testing::expect_refused(transport, ErrorCode::kMismatch, "3lc:s=1.5");
  if (!odd_one) {
    EXPECT_EQ(transport.error().suspect, probe->world_size() - 1);
  }
}

}  // namespace
}  // namespace deltawire::test
