#include <atomic>
#include <future>
#include <vector>

#include <gtest/gtest.h>

#include "reduce/rank_threads.h"

namespace deltawire {
namespace {

TEST(ReduceQueue, ManyStepsInOrder) {
  constexpr int kWorld = 3;
  run_ranks(kWorld, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of("3lc");
    std::vector<std::uint32_t> order;
    std::vector<std::vector<float>> tensors(12, std::vector<float>(400, static_cast<float>(rank)));
    ReduceQueue queue(*reducer, transport);
    for (std::uint32_t i = 0; i < tensors.size(); ++i) {
      const std::string name = "w" + std::to_string(i % 3);
      const Named tensor{name, {tensors[i].data(), 400, DType::kF32}, 0};
      queue.submit(std::span(&tensor, 1), {i / 3, 0, i % 3, i % 3 == 2}, std::chrono::seconds(20),
                   [&order, i](const Result<Report>& report) {
                     EXPECT_TRUE(report) << report.error().message;
                     order.push_back(i);
                   });
    }
    queue.stop();
    ASSERT_EQ(order.size(), tensors.size());
    for (std::uint32_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
    for (const float value : tensors[0]) EXPECT_EQ(value, 1.0F);
  });
}

TEST(ReduceQueue, AfterAnErrorEverythingFailsWithIt) {
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of("fp32");
    std::vector<float> values(10, 1.0F);
    std::vector<ErrorCode> codes;
    ReduceQueue queue(*reducer, transport);
    if (rank == 1) {
      transport.abort({ErrorCode::kAborted, "rank 1 has had enough", 1});
    }
    for (std::uint32_t i = 0; i < 4; ++i) {
      const Named tensor{"w", {values.data(), 10, DType::kF32}, 0};
      queue.submit(std::span(&tensor, 1), {i, 0, 0, true}, std::chrono::seconds(5),
                   [&](const Result<Report>& report) {
                     ASSERT_FALSE(report);
                     EXPECT_EQ(report.error().suspect, 1);
                     codes.push_back(report.error().code);
                   });
    }
    queue.stop();
    EXPECT_EQ(codes, std::vector<ErrorCode>(4, ErrorCode::kAborted));
  });
}

TEST(ReduceQueue, SubmittingAfterStopFails) {
  run_ranks(1, {}, [](int, Transport& transport) {
    const auto reducer = reducer_of("fp32");
    ReduceQueue queue(*reducer, transport);
    queue.stop();
    bool failed = false;
    queue.submit({}, {}, std::chrono::seconds(2), [&](const Result<Report>& report) { failed = !report; });
    EXPECT_TRUE(failed);
  });
}

}  // namespace
}  // namespace deltawire
