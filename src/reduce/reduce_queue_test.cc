#include "reduce/reduce_queue.h"

#include <future>

#include <gtest/gtest.h>

#include "reduce/rank_threads_testing.h"
#include "reduce/vote.h"

namespace deltawire::reduce_queue_test {
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
      queue.submit(std::span(&tensor, 1), {i / 3, i % 3, i % 3 == 2}, std::chrono::seconds(20),
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
      queue.submit(std::span(&tensor, 1), {i, 0, true}, std::chrono::seconds(5),
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

// Rank 1 never answers the first bucket, and sees the second all the same.
TEST(ReduceQueue, ABucketBeginsWhileAnotherIsWaitedFor) {
  std::promise<void> first_is_out;
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of("gather(fp32)");
    std::vector<std::vector<float>> tensors(2, std::vector<float>(300, static_cast<float>(rank)));
    const std::vector<Named> named{{"a", {tensors[0].data(), 300, DType::kF32}, 0},
                                   {"b", {tensors[1].data(), 300, DType::kF32}, 0}};
    const std::vector<Step> steps{{0, 0, false}, {0, 1, true}};
    if (rank == 0) {
      ReduceQueue queue(*reducer, transport);
      const auto done = [](const Result<Report>& report) {
        ASSERT_FALSE(report);  // rank 1 has no reducer and ends it
        EXPECT_EQ(report.error().code, ErrorCode::kAborted) << report.error().message;
      };
      queue.submit(std::span(named).first(1), steps[0], std::chrono::seconds(5), done);
      first_is_out.get_future().wait();
      queue.submit(std::span(named).last(1), steps[1], std::chrono::seconds(5), done);
      queue.stop();
    } else {
      std::vector<std::vector<std::byte>> messages(2, std::vector<std::byte>(10000));
      for (std::size_t b = 0; b < 2; ++b) {
        const Handle handle = transport.post_recv(0, tag_of(steps[b], 0), messages[b]);
        const auto length = transport.wait(handle, in_seconds(4));
        if (b == 0) first_is_out.set_value();
        ASSERT_TRUE(length) << "bucket " << b << ": " << length.error().message;
      }
      transport.abort({ErrorCode::kAborted, "that is all", 1});
    }
  });
}

}  // namespace
}  // namespace deltawire::reduce_queue_test
