// Processes over Gloo that die or freeze, and who is named.
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include "deltawire/connect_gloo.h"
#include "multiproc/rank_processes.h"

namespace deltawire {
namespace {

using namespace std::chrono_literals;

class GlooProcesses : public ::testing::TestWithParam<int> {
 protected:
  GlooProcesses()
      : folder_(std::filesystem::temp_directory_path() /
                ("deltawire-gloo-processes-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~GlooProcesses() override { std::filesystem::remove_all(folder_); }

  // Steps through an endless training until an error.
  void train(const RankContext& context, std::chrono::seconds deadline) const {
    GlooOptions options;
    options.rank = context.rank;
    options.world_size = context.world_size;
    options.rendezvous_folder = folder_.string();
    options.job = "training";
    options.host = "127.0.0.1";
    options.connect_timeout = std::chrono::seconds(20);
    auto transport = connect_gloo(options);
    if (!transport) return context.record(transport.error());
    auto reducer = make_reducer("direct(fp32)");
    std::vector<float> values(70000, 1.0F);
    const Named tensor{"fc.weight", {values.data(), values.size(), DType::kF32}, 0};
    for (std::uint64_t step = 0;; ++step) {
      const auto report = (*reducer)->all_reduce(std::span(&tensor, 1), {step, 0, true}, **transport,
                                                 Clock::now() + deadline);
      if (!report) return context.record(report.error());
      ++context.own().steps_done;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  static void expect_survivors_name(RankProcesses& ranks, int suspect, ErrorCode code) {
    for (int rank = 0; rank < GetParam(); ++rank) {
      if (rank == suspect) continue;
      EXPECT_TRUE(ranks.wait_exit(rank, std::chrono::seconds(40))) << "rank " << rank << " hangs";
      EXPECT_EQ(ranks.record(rank).failed, 1) << "rank " << rank;
      EXPECT_EQ(ranks.record(rank).suspect, suspect) << ranks.record(rank).message.data();
      EXPECT_EQ(ranks.record(rank).code, static_cast<int>(code)) << ranks.record(rank).message.data();
    }
  }

  std::filesystem::path folder_;
};
INSTANTIATE_TEST_SUITE_P(Worlds, GlooProcesses, ::testing::Values(2, 4));

TEST_P(GlooProcesses, AKilledRankIsNamedAsLost) {
  RankProcesses ranks(GetParam(), [this](const RankContext& context) { train(context, 60s); });
  ASSERT_TRUE(ranks.wait_steps(1, 5)) << ranks.record(1).message.data();
  const std::int64_t killed_at = now_ms();
  ranks.send_signal(1, SIGKILL);
  expect_survivors_name(ranks, 1, ErrorCode::kPeerLost);
  for (int rank = 0; rank < GetParam(); ++rank) {
    if (rank == 1) continue;
    EXPECT_LT(ranks.record(rank).failed_at_ms - killed_at, 25000)
        << "noticed by the deadline, not by the close";
  }
}

TEST_P(GlooProcesses, AFrozenRankIsNamedByAllAtTheDeadline) {
  RankProcesses ranks(GetParam(), [this](const RankContext& context) { train(context, 3s); });
  ASSERT_TRUE(ranks.wait_steps(0, 3)) << ranks.record(0).message.data();
  ranks.send_signal(0, SIGSTOP);
  expect_survivors_name(ranks, 0, ErrorCode::kTimeout);
}

}  // namespace
}  // namespace deltawire
