// What only the ring has: messages of a hop that follow each other, and buffers that take turns.
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "reduce/patterns/ring_plan.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::ring_test {
namespace {

// More elements than one message holds, on each rank.
std::vector<float> long_tensor(int rank, std::size_t count) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), static_cast<float>(rank));
  return values;
}

std::vector<float> reduced(const char* spec, const ReducerOptions& options, std::size_t count,
                           std::uint64_t* bytes_sent) {
  std::vector<std::vector<float>> results(2);
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec, options);
    std::vector<float> values = long_tensor(rank, count);
    const Named tensor{"w", {values.data(), count, DType::kF32}, 0};
    const auto report = reducer->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(20));
    ASSERT_TRUE(report) << report.error().message;
    if (rank == 0) *bytes_sent = report->bytes_sent;
    results[static_cast<std::size_t>(rank)] = values;
  });
  EXPECT_EQ(results[0], results[1]);
  return results[0];
}

TEST(Ring, ThreadsChangeNothing) {
  constexpr std::size_t kCount = 2 * kRingMessageElements + 17;
  ReducerOptions three;
  three.threads = 3;
  std::uint64_t bytes = 0;
  std::uint64_t bytes_of_three = 0;
  for (const char* spec : {"ring(gcomp)", "gather(gcomp)", "direct(gcomp:cut=6)"}) {
    EXPECT_EQ(reduced(spec, {}, kCount, &bytes), reduced(spec, three, kCount, &bytes_of_three)) << spec;
    EXPECT_EQ(bytes, bytes_of_three) << spec;
  }
}

TEST(Ring, SendsTwoTensorsLessTheOwnShare) {
  constexpr std::size_t kCount = 4 * kRingMessageElements;
  run_ranks(4, {}, [](int rank, Transport& transport) {
    const auto reducer = reducer_of("ring(fp32)");
    std::vector<float> values = long_tensor(rank, kCount);
    const Named tensor{"w", {values.data(), kCount, DType::kF32}, 0};
    const auto report = reducer->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(20));
    ASSERT_TRUE(report) << report.error().message;
    const double expected = 2.0 * 3 / 4 * 4 * kCount;
    EXPECT_NEAR(static_cast<double>(report->bytes_sent), expected, 0.002 * expected);
  });
}

TEST(Ring, CannotMaskMomentum) {
  std::vector<float> momentum(10);
  EXPECT_EQ(reducer_of("ring(fp32)")->mask_sent("w", momentum).error().code, ErrorCode::kInvalidArgument);
}

// What it sends is others' too: neither can a rank's momentum be added to it.
TEST(Ring, RefusesFeedback) {
  testing::expect_refused(make_reducer("ring(rest sbc with momentum=0.9)"), ErrorCode::kInvalidArgument,
                          "partial sums");
}

}  // namespace
}  // namespace deltawire::ring_test
