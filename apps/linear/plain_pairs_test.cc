#include "linear/plain_pairs.h"

#include <thread>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "deltawire/connect.h"

namespace deltawire::linear::plain_pairs_test {
namespace {

constexpr std::uint64_t kDimension = 10;

// The result of each rank; there are as many ranks as lists.
std::vector<Result<Report>> average_all(std::vector<Pairs>& lists) {
  const auto world = static_cast<int>(lists.size());
  auto transports = connect_inproc(world);
  EXPECT_TRUE(transports);
  std::vector<double> counts;
  for (const Pairs& list : lists) counts.push_back(static_cast<double>(list.keys.size()));
  std::vector<Result<Report>> reports(lists.size());
  std::vector<std::thread> ranks;
  for (std::size_t rank = 0; rank < lists.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      const Deadline deadline = Clock::now() + std::chrono::seconds(30);
      reports[rank] = average_plain_pairs(*(*transports)[rank], counts, Tag{7}, deadline, lists[rank]);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  return reports;
}

TEST(PlainPairs, AllRanksGetTheMean) {
  std::vector<Pairs> lists{{.keys = {1, 4, 9}, .values = {3, 6, 9}, .dimension = kDimension},
                           {.keys = {}, .values = {}, .dimension = kDimension},
                           {.keys = {0, 4}, .values = {1.5F, -3}, .dimension = kDimension}};
  const auto reports = average_all(lists);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ASSERT_TRUE(reports[rank]) << reports[rank].error().message;
    EXPECT_EQ(lists[rank].keys, (std::vector<std::uint32_t>{0, 1, 4, 9}));
    EXPECT_EQ(lists[rank].values, (std::vector<float>{0.5F, 1, 1, 3}));
    EXPECT_EQ(lists[rank].dimension, kDimension);
  }
  EXPECT_EQ(reports[0]->bytes_sent, 2U * 3 * 8);
  EXPECT_EQ(reports[1]->bytes_sent, 0U);
}

TEST(PlainPairs, ListsThatMakeNoSenseAreRefused) {
  for (const auto& keys : {std::vector<std::uint32_t>{2, 2}, {1, kDimension}}) {
    std::vector<Pairs> lists{{.keys = {1}, .values = {1}, .dimension = kDimension},
                             {.keys = keys, .values = {1, 1}, .dimension = kDimension}};
    const auto reports = average_all(lists);
    testing::expect_refused(reports[0], ErrorCode::kCorrupt);
    EXPECT_EQ(reports[0].error().message.substr(0, 11), "rank 1 sent");
  }
  auto alone = connect_inproc(1);
  ASSERT_TRUE(alone);
  Pairs own{.keys = {}, .values = {}, .dimension = kDimension};
  const std::vector<double> too_many{11};
  testing::expect_refused(average_plain_pairs(*alone->front(), too_many, Tag{7}, Clock::now(), own),
                          ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace deltawire::linear::plain_pairs_test
