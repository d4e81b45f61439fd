// Training steps over real TCP processes, and what the survivors say when one of them fails. Deadlines are
// at least 2 s, and the only upper bounds on time are the deadlines themselves plus ample slack.
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "rank_processes.h"

namespace deltawire::direct_tcp_test {
namespace {

constexpr std::size_t kCount = 70000;
constexpr auto kDeadline = std::chrono::seconds(3);  // of tests that wait for it
constexpr auto kNever = std::chrono::seconds(60);    // a deadline that no test waits for
constexpr std::int64_t kAtOnceMs = 25000;            // on a busy machine, and well before kNever

struct Training {
  std::string spec = "3lc:s=1.75";
  std::uint64_t steps = 1000000;
  std::chrono::milliseconds pause{1};
  std::chrono::seconds deadline = kNever;
};

// Steps until an error or the end; `before` runs ahead of each.
void train(const RankContext& context, const Training& how,
           const std::function<void(std::uint64_t)>& before = {}) {
  auto transport = meet(context, how.spec);
  if (!transport) return context.record(transport.error());
  auto reducer = make_reducer(how.spec);
  if (!reducer) return context.record(reducer.error());
  std::vector<float> values(kCount);
  const Named tensor{"fc.weight", {values.data(), kCount, DType::kF32}, 0};
  for (std::uint64_t step = 0; step < how.steps; ++step) {
    if (before) before(step);
    for (std::size_t i = 0; i < kCount; ++i) {
      values[i] =
          static_cast<float>((i * 31 + step * 7 + static_cast<std::uint64_t>(context.rank)) % 17) - 8.0F;
    }
    const auto report = (*reducer)->all_reduce(std::span(&tensor, 1), {step, 0, true}, **transport,
                                               Clock::now() + how.deadline);
    if (!report) {
      context.record(report.error());
      // Stay alive for a while: the error, not the death, must be what the others see.
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return;
    }
    context.own().digest = report->digest;
    ++context.own().steps_done;
    std::this_thread::sleep_for(how.pause);
  }
}

void expect_survivors_name(RankProcesses& ranks, int world, int suspect) {
  for (int rank = 0; rank < world; ++rank) {
    if (rank == suspect) continue;
    EXPECT_TRUE(ranks.wait_exit(rank, std::chrono::seconds(40))) << "rank " << rank << " hangs";
    EXPECT_EQ(ranks.record(rank).failed, 1) << "rank " << rank;
    EXPECT_EQ(ranks.record(rank).suspect, suspect)
        << "rank " << rank << ": " << ranks.record(rank).message.data();
  }
}

class DirectTcp : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, DirectTcp, ::testing::Values(2, 3, 4));

TEST_P(DirectTcp, ReplicasAreBitEqualForEveryCodecAndPattern) {
  for (const char* spec : {"direct(fp32)", "direct(bf16)", "3lc", "3lc:s=1.75", "ring(fp32)", "gcomp",
                           "gather(bf16)", "sbc", "fastsgd"}) {
    Training how;
    how.spec = spec;
    how.steps = 5;
    RankProcesses ranks(GetParam(), [&](const RankContext& context) { train(context, how); });
    for (int rank = 0; rank < GetParam(); ++rank) {
      ASSERT_TRUE(ranks.wait_exit(rank, std::chrono::seconds(60)));
      EXPECT_EQ(ranks.record(rank).steps_done, 5u) << ranks.record(rank).message.data();
      EXPECT_EQ(ranks.record(rank).digest, ranks.record(0).digest) << spec;
    }
  }
}

TEST_P(DirectTcp, AKilledRankIsNamedThoughItsChildLives) {
  const int world = GetParam();
  RankProcesses ranks(world, [&](const RankContext& context) {
    train(context, {}, [&](std::uint64_t step) {
      // Like a DataLoader worker: forked with the sockets, and outliving its parent.
      if (context.rank == 1 && step == 2 && fork() == 0) {
        close(STDOUT_FILENO);  // or the test's runner waits for this child too
        close(STDERR_FILENO);
        std::this_thread::sleep_for(std::chrono::seconds(40));
        _exit(0);
      }
    });
  });
  ASSERT_TRUE(ranks.wait_steps(1, 5));
  const std::int64_t killed_at = now_ms();
  ranks.send_signal(1, SIGKILL);
  expect_survivors_name(ranks, world, 1);
  for (int rank = 0; rank < world; ++rank) {
    if (rank == 1) continue;
    EXPECT_EQ(ranks.record(rank).code, static_cast<int>(ErrorCode::kPeerLost));
    EXPECT_LT(ranks.record(rank).failed_at_ms - killed_at, kAtOnceMs)
        << "it was not the close that was noticed";
  }
}

TEST_P(DirectTcp, AFrozenRankIsNamedByAllAtTheDeadline) {
  const int world = GetParam();
  RankProcesses ranks(world, [&](const RankContext& context) { train(context, {.deadline = kDeadline}); });
  ASSERT_TRUE(ranks.wait_steps(world - 1, 3));
  ranks.send_signal(world - 1, SIGSTOP);
  expect_survivors_name(ranks, world, world - 1);
}

}  // namespace
}  // namespace deltawire::direct_tcp_test
