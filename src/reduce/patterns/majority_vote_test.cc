// signSGD with majority vote is `direct` with bare signs: what all ranks get is what most of them say.
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::majority_vote_test {
namespace {

constexpr std::size_t kCount = 100000;  // cut among the ranks

float gradient(int rank, std::size_t i) {
  return static_cast<float>(CounterRng(static_cast<std::uint64_t>(rank)).at(i) >> 40) - 0x1p23F;
}

float vote_of(int world, std::size_t i) {
  int votes = 0;
  for (int rank = 0; rank < world; ++rank) votes += gradient(rank, i) < 0 ? -1 : 1;
  return votes < 0 ? -1.0F : 1.0F;  // a tie is +1
}

TEST(MajorityVote, IsWhatMostRanksSay) {
  for (const int world : {1, 2, 3, 5}) {
    run_ranks(world, {}, [world](int rank, Transport& transport) {
      std::vector<float> values(kCount);
      for (std::size_t i = 0; i < kCount; ++i) values[i] = gradient(rank, i);
      const Named tensor{"w", {values.data(), kCount, DType::kF32}};
      const auto reducer = reducer_of("direct(signsgd:feedback=off,scale=one)");
      const auto report = reducer->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(20));
      ASSERT_TRUE(report) << report.error().message;
      for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(values[i], vote_of(world, i)) << world << " " << i;
      // A push and its share of the pulls: a bit a value, twice.
      EXPECT_LT(report->bytes_sent, (2 * kCount / 8 + 2000) * static_cast<std::uint64_t>(world));
    });
  }
}

}  // namespace
}  // namespace deltawire::majority_vote_test
