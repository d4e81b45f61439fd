// Several messages a hop, and several buckets in flight: none may hold up another, and none changes a bit.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/refusal_testing.h"
#include "deltawire/channel.h"
#include "reduce/patterns/owners.h"
#include "reduce/rank_threads_testing.h"
#include "reduce/vote.h"
#include "transport/links/faulty_link_testing.h"

namespace deltawire::overlap_test {
namespace {

using Tensors = std::vector<std::vector<float>>;

// Several messages for each rank, exactly two for each of two, and a small one.
const std::vector<std::uint64_t> kCounts{1500001, 983040, 300};
const std::vector<std::string> kNames{"embedding.weight", "fc.weight", "fc.bias"};

Tensors gradients(int rank) {
  Tensors all;
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    const CounterRng random(static_cast<std::uint64_t>(rank), i);
    auto& values = all.emplace_back(kCounts[i]);
    for (std::size_t k = 0; k < values.size(); ++k) {
      values[k] = static_cast<float>(random.uniform_at(k) - 0.5);
    }
  }
  return all;
}

// From the rank after the owner round to the owner, each value scaled before it is added.
Tensors sums_in_ring_order(int world) {
  std::vector<Tensors> inputs;
  for (int rank = 0; rank < world; ++rank) inputs.push_back(gradients(rank));
  const float scale = 1.0F / static_cast<float>(world);
  Tensors sums;
  for (std::size_t i = 0; i < kCounts.size(); ++i) {
    auto& sum = sums.emplace_back(kCounts[i], 0.0F);
    for (const OwnedRange& range : owned_ranges(kNames[i], kCounts[i], world)) {
      for (std::uint64_t k = range.first; k < range.first + range.count; ++k) {
        for (int hop = 1; hop <= world; ++hop) {
          sum[k] += scale * inputs[static_cast<std::size_t>((range.owner + hop) % world)][i][k];
        }
      }
    }
  }
  return sums;
}

void reduce_bucket_by_bucket(Reducer& reducer, Tensors& tensors, Transport& transport) {
  for (std::uint32_t b = 0; b < kCounts.size(); ++b) {
    const Named tensor{kNames[b], {tensors[b].data(), tensors[b].size(), DType::kF32}, 0};
    const auto begun =
        reducer.begin(std::span(&tensor, 1), {0, b, b + 1 == kCounts.size()}, transport, in_seconds(60));
    ASSERT_TRUE(begun) << begun.error().message;
  }
  for (std::size_t b = 0; b < kCounts.size(); ++b) {
    const auto report = reducer.finish();
    ASSERT_TRUE(report) << report.error().message;
  }
}

class LongRing : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, LongRing, ::testing::Values(1, 2, 3, 5));

TEST_P(LongRing, Fp32IsTheSumInRingOrderBitForBit) {
  const Tensors expected = sums_in_ring_order(GetParam());
  run_ranks(GetParam(), {}, [&](int rank, Transport& transport) {
    Tensors tensors = gradients(rank);
    reduce_bucket_by_bucket(*reducer_of("ring(fp32)"), tensors, transport);
    // Not EXPECT_EQ: a difference would print millions of numbers.
    EXPECT_TRUE(tensors == expected) << "rank " << rank;
  });
}

// Late messages change what is ready first.
TEST(Overlap, DelayedLinksChangeNothing) {
  constexpr int kWorld = 3;
  std::vector<LinkOptions> links(kWorld);
  links[1].wrap = test::faulty({test::LinkFault::Kind::kDelay, 2, 0, std::chrono::milliseconds(4)});
  links[2].wrap = test::faulty({test::LinkFault::Kind::kDelay, 0, 0, std::chrono::milliseconds(1)});
  for (const char* spec : {"ring(bf16)", "direct(bf16)", "gather(bf16)"}) {
    std::vector<Tensors> results(kWorld);
    for (const bool delayed : {false, true}) {
      run_ranks(kWorld, delayed ? links : std::vector<LinkOptions>{}, [&](int rank, Transport& transport) {
        Tensors tensors = gradients(rank);
        reduce_bucket_by_bucket(*reducer_of(spec), tensors, transport);
        auto& prompt = results[static_cast<std::size_t>(rank)];
        if (!delayed) prompt = tensors;
        EXPECT_TRUE(tensors == prompt) << spec << " rank " << rank;
      });
    }
    EXPECT_TRUE(results[0] == results[1] && results[0] == results[2]) << spec;
  }
}

// Rank 1 takes no part in the first bucket, and sends its share of the second: rank 0, which waits for the
// first, goes on with the second all the same.
TEST(Overlap, AYoungerBucketMovesWhileTheOldestWaits) {
  std::string name = "w";
  while (owned_ranges(name, 300, 2)[0].owner != 0) name += "w";
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    std::vector<float> values(300, static_cast<float>(rank));
    const Named younger{name, {values.data(), values.size(), DType::kF32}, 0};
    if (rank == 0) {
      std::vector<float> others(300, 1.0F);
      const Named oldest{"oldest", {others.data(), others.size(), DType::kF32}, 0};
      const auto reducer = reducer_of("ring(fp32)");
      ASSERT_TRUE(reducer->begin(std::span(&oldest, 1), {0, 0, false}, transport, in_seconds(5)));
      ASSERT_TRUE(reducer->begin(std::span(&younger, 1), {0, 1, true}, transport, in_seconds(5)));
      testing::expect_refused(reducer->finish(), ErrorCode::kAborted);
    } else {
      const auto channel = std::move(*make_channel("fp32"));
      const auto share = channel->encode(std::span(&younger, 1), MessageId{0, 1, 2, 1, 0});
      const Handle sent = transport.post_send(0, tag_of({0, 1}, 0), *share);
      std::vector<std::byte> mean(10000);
      const auto received = transport.wait(transport.post_recv(0, tag_of({0, 1}, 1), mean), in_seconds(4));
      ASSERT_TRUE(received) << received.error().message;
      EXPECT_GT(*received, 4 * 300u);
      (void)transport.wait(sent, in_seconds(4));
      transport.abort({ErrorCode::kAborted, "that is all", 1});
    }
  });
}

}  // namespace
}  // namespace deltawire::overlap_test
