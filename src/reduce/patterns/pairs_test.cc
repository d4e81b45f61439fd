// Tensors in key-value form: their mean is that of the dense tensors they stand for, whatever travels with
// them.
#include <algorithm>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "base/float_environment.h"
#include "base/refusal_testing.h"
#include "reduce/patterns/pairs_testing.h"
#include "reduce/patterns/patterns.h"
#include "reduce/vote.h"
#include "transport/links/faulty_link_testing.h"

namespace deltawire::pairs_test {
namespace {

class PairsMean : public ::testing::TestWithParam<std::tuple<const char*, int>> {
 protected:
  static std::string with(const std::string& codec) {
    return std::string(std::get<0>(GetParam())) + "(" + codec + ")";
  }
  static int world() { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(Worlds, PairsMean,
                         ::testing::Combine(::testing::Values("direct", "gather"),
                                            ::testing::Values(1, 2, 3, 5)));

TEST_P(PairsMean, EqualsTheMeanOfTheDenseTensors) {
  const std::string spec = with("fastsgd:b=1.02,tau=2047");
  ReducerOptions options;
  // `direct` has other parts of keys than of dense tensors: only what is not coded is the same bit for bit.
  const bool are_partitioned = std::string(std::get<0>(GetParam())) == "direct";
  if (are_partitioned) options.policy.min_elements = 1000000;
  run_ranks(world(), {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec, options);
    const auto dense_reducer = reducer_of(spec, options);
    for (std::uint64_t step = 0; step < 3; ++step) {
      Updates updates(rank, step);
      const auto report =
          reducer->all_reduce(updates.bucket(), {2 * step, 0, true}, transport, in_seconds(20));
      ASSERT_TRUE(report) << report.error().message;
      std::vector<std::vector<float>> dense;
      std::vector<Named> list;
      for (const Pairs& pairs : updates.pairs) dense.push_back(dense_of(pairs));
      for (std::size_t i = 0; i < kNames.size(); ++i) list.push_back(named(kNames[i], dense[i]));
      const auto expected =
          dense_reducer->all_reduce(list, {2 * step + 1, 0, true}, transport, in_seconds(20));
      ASSERT_TRUE(expected) << expected.error().message;
      // As many elements as the dense tensors have, and as many of them sent, but for how they are cut.
      EXPECT_EQ(report->element_count, 80000U + 50U + 300U);
      EXPECT_NEAR(static_cast<double>(report->raw_bytes), static_cast<double>(expected->raw_bytes),
                  are_partitioned ? 4.0 * 2 * 640 * world() : 0.0);
      for (std::size_t i = 0; i < kNames.size(); ++i) {
        EXPECT_EQ(updates.means[i].dimension, kDimensions[i]);
        EXPECT_TRUE(dense_of(updates.means[i]) == dense[i]) << kNames[i];
        EXPECT_LT(updates.means[i].keys.size(), kDimensions[i]);
      }
    }
  });
}

// Buckets decide nothing: in one with a dense tensor, or each alone and all in flight.
TEST_P(PairsMean, MayTravelWithDenseTensorsInOneBucketOrInOneStep) {
  std::vector<std::vector<Pairs>> whole(static_cast<std::size_t>(world()));
  run_ranks(world(), {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(with("fastsgd"));
    std::vector<std::vector<float>> dense_means;
    for (const bool apart : {false, true}) {
      Updates updates(rank, 0);
      std::vector<float> dense(20000);
      for (std::size_t i = 0; i < dense.size(); i += 3) dense[i] = static_cast<float>(i % 50) + 1;
      std::vector<Named> list = updates.list;
      list.insert(list.begin() + 1, named("dense", dense));
      const auto count = static_cast<std::uint32_t>(apart ? list.size() : 1);
      std::span<Pairs> means(updates.means);
      for (std::uint32_t b = 0; b < count; ++b) {
        const auto tensors = apart ? std::span(list).subspan(b, 1) : std::span(list);
        const std::size_t keyed = !apart ? means.size() : tensors[0].tensor.has_keys() ? 1 : 0;
        const Step step{apart ? 1U : 0U, b, b + 1 == count};
        const auto begun = reducer->begin({tensors, means.first(keyed)}, step, transport, in_seconds(20));
        ASSERT_TRUE(begun) << begun.error().message;
        means = means.subspan(keyed);
      }
      for (std::uint32_t b = 0; b < count; ++b) {
        const auto report = reducer->finish();
        ASSERT_TRUE(report) << report.error().message;
      }
      auto& expected = whole[static_cast<std::size_t>(rank)];
      if (!apart) expected = updates.means;
      for (std::size_t i = 0; i < kNames.size(); ++i) {
        EXPECT_TRUE(same(updates.means[i], expected[i])) << kNames[i];
        EXPECT_GT(updates.means[i].keys.size(), 0u);
      }
      dense_means.push_back(dense);
    }
    EXPECT_TRUE(dense_means[0] == dense_means[1]);
    EXPECT_GT(dense_means[0][48], 0.0F);
  });
  for (const auto& means : whole) {
    for (std::size_t i = 0; i < kNames.size(); ++i) EXPECT_TRUE(same(means[i], whole[0][i]));
  }
}

TEST_P(PairsMean, OfNothingIsNothing) {
  run_ranks(world(), {}, [&](int rank, Transport& transport) {
    for (const std::uint64_t dimension : {100000U, 50U}) {
      for (const bool one_has_some : {false, true}) {
        Pairs own;
        own.dimension = dimension;
        // More than the others, whose buffers must be large enough.
        for (std::uint32_t key = 0; one_has_some && rank == 0 && key < dimension; key += 3) {
          own.keys.push_back(key);
          own.values.push_back(4.0F);
        }
        Pairs mean{{1, 2}, {3.0F, 4.0F}, 5};
        const auto reducer = reducer_of(with("fastsgd:tau=2047"));
        const Named tensor = named("w", own);
        const Step step{2 * std::uint64_t{dimension == 50} + std::uint64_t{one_has_some}, 0, true};
        const auto report = reducer->all_reduce({std::span(&tensor, 1), std::span(&mean, 1)}, step, transport,
                                                in_seconds(20));
        ASSERT_TRUE(report) << report.error().message;
        EXPECT_EQ(mean.dimension, dimension);
        EXPECT_EQ(mean.keys.size(), one_has_some ? (dimension + 2) / 3 : 0);
      }
    }
  });
}

// By pattern.
class KeyValue : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string with(const std::string& codec) { return std::string(GetParam()) + "(" + codec + ")"; }
};

INSTANTIATE_TEST_SUITE_P(Patterns, KeyValue, ::testing::Values("direct", "gather"));

TEST_P(KeyValue, TakeFewerBytesThanTheyWouldRaw) {
  run_ranks(2, {}, [](int rank, Transport& transport) {
    Updates updates(rank, 0);
    const auto report =
        reducer_of(with("fastsgd"))->all_reduce(updates.bucket(), {0, 0, true}, transport, in_seconds(20));
    ASSERT_TRUE(report);
    EXPECT_LT(report->bytes_sent, 4 * updates.pairs[0].keys.size());
  });
}

// Nothing of the size of the dimension is touched or kept.
TEST_P(KeyValue, AVastDimensionCostsNothing) {
  static constexpr std::uint32_t kDimension = 20000000;
  run_ranks(2, {}, [](int rank, Transport& transport) {
    Pairs own{{5, static_cast<std::uint32_t>(1000 + rank), kDimension - 1}, {1, 1, 1}, kDimension};
    Pairs mean;
    const auto report = reduce(*reducer_of(with("fastsgd")), named("ads", own), mean, transport);
    ASSERT_TRUE(report) << report.error().message;
    EXPECT_EQ(mean.keys, (std::vector<std::uint32_t>{5, 1000, 1001, kDimension - 1}));
    EXPECT_EQ(mean.dimension, kDimension);
    EXPECT_LT(mean.keys.capacity(), 10000u);
  });
}

TEST_P(KeyValue, AFailedStepDeliversNothing) {
  std::vector<LinkOptions> broken(2);
  broken[0].wrap = test::faulty({test::LinkFault::Kind::kFlip, 1, 300, {}});
  run_ranks(2, broken, [](int rank, Transport& transport) {
    Updates updates(rank, 0);
    updates.means[0].keys = {77};
    const auto report =
        reducer_of(with("fastsgd"))->all_reduce(updates.bucket(), {0, 0, true}, transport, in_seconds(20));
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().suspect, 0);
    EXPECT_EQ(updates.means[0].keys, std::vector<std::uint32_t>{77});
    EXPECT_TRUE(same(updates.pairs[0], update_of(rank, kDimensions[0], 0)));
  });
}

TEST_P(KeyValue, GarbageIsRefusedAndItsSenderNamed) {
  for (const std::size_t length : {0U, 3U, 64U, 1000U}) {
    run_ranks(2, {}, [&](int rank, Transport& transport) {
      if (rank == 0) {
        Updates updates(rank, 0);
        const auto report =
            reducer_of(with("fastsgd"))->all_reduce(updates.bucket(), {0, 0, true}, transport, in_seconds(5));
        ASSERT_FALSE(report);
        EXPECT_EQ(report.error().suspect, 1) << report.error().message;
        EXPECT_TRUE(updates.means[0].keys.empty());
        return;
      }
      const std::vector<std::byte> garbage(length, std::byte{0x57});
      const Bytes piece(garbage);
      (void)transport.wait(transport.post_send(0, tag_of({}, 0), std::span(&piece, 1)), in_seconds(5));
      (void)transport.wait(transport.post_recv(0, 12345, {}), in_seconds(5));
    });
  }
}

TEST_P(KeyValue, ValuesThatAreNotFiniteFailTheStepEverywhere) {
  run_ranks(2, {}, [](int rank, Transport& transport) {
    Pairs own{{5, 900}, {1.0F, rank == 1 ? std::numeric_limits<float>::infinity() : 1.0F}, 100000};
    Pairs mean;
    ReducerOptions options;
    options.policy.nonfinite = NonFinite::kPass;  // which pairs can't
    const auto report = reduce(*reducer_of(with("fastsgd"), options), named("w", own), mean, transport);
    ASSERT_FALSE(report);
    EXPECT_EQ(report.error().suspect, 1) << report.error().message;
  });
}

// The vote fails because one rank had a bucket more: the caller's lists must be as they were.
TEST_P(KeyValue, AreHandedOverAfterTheVoteOnly) {
  run_ranks(2, {}, [](int rank, Transport& transport) {
    const auto reducer = reducer_of(with("fastsgd"));
    Updates updates(rank, 0);
    updates.means[0] = {{7}, {1.0F}, 10};
    if (rank == 0) {
      std::vector<float> none;
      const Named dense = named("d", none);
      ASSERT_TRUE(reducer->begin(std::span(&dense, 1), {0, 1, false}, transport, in_seconds(5)));
      ASSERT_TRUE(reducer->finish());
    }
    testing::expect_refused(reducer->all_reduce(updates.bucket(), {0, 0, true}, transport, in_seconds(5)),
                            ErrorCode::kMismatch);
    EXPECT_EQ(updates.means[0].keys, std::vector<std::uint32_t>{7});
  });
}

TEST_P(KeyValue, WithAResidualAreRefused) {
  run_ranks(1, {}, [](int, Transport& transport) {
    Pairs own{{7}, {1.0F}, 1000};
    Pairs mean;
    const auto report = reduce(*reducer_of(with("fastsgd:residual=on")), named("w", own), mean, transport);
    ASSERT_FALSE(report);
    EXPECT_NE(report.error().message.find("residual"), std::string::npos) << report.error().message;
  });
}

TEST_P(KeyValue, NeedAMeanForEachTensor) {
  for (const std::size_t means : {0U, 2U, 4U}) {
    run_ranks(1, {}, [&](int rank, Transport& transport) {
      Updates updates(rank, 0);
      updates.means.resize(means);
      testing::expect_refused(
          reducer_of(with("fastsgd"))->all_reduce(updates.bucket(), {0, 0, true}, transport, in_seconds(5)),
          ErrorCode::kInvalidArgument, "3 key-value tensors");
    });
  }
}

// Also where parts are cut, so that each of them alone may look well.
TEST_P(KeyValue, KeysOutOfOrderAreRefused) {
  const auto make = std::string(GetParam()) == "direct" ? make_direct_reducer : make_gather_reducer;
  for (const std::uint64_t dimension : {100U, 5000U}) {
    for (const std::vector<std::uint32_t>& keys : std::vector<std::vector<std::uint32_t>>{
             {4, 9, 9}, {4, 99, 9}, {4, 4900, 9}, {99, 4, 9}, {4, 9, 5000}, {4, 9, 0xFFFFFFFF}}) {
      run_ranks(1, {}, [&](int, Transport& transport) {
        Pairs own{keys, {1, 2, 3}, dimension};
        Pairs mean;
        const auto reducer = make("fastsgd", {}, 320);
        testing::expect_refused(reduce(**reducer, named("w", own), mean, transport),
                                ErrorCode::kInvalidArgument);
      });
    }
  }
}

// Momentum is masked at the places of the keys that were sent, in each part; also where a tensor has as
// many shards of keys as a dense one has ranges.
TEST_P(KeyValue, MaskMomentum) {
  for (const std::uint32_t dimension : {40000U, 64000U}) {
    run_ranks(2, {}, [&](int, Transport& transport) {
      Pairs own{{7, 900, 20010, 39999}, {5, 5, 5, 5}, dimension};
      Pairs mean;
      const auto reducer = reducer_of(with("fastsgd"));
      ASSERT_TRUE(reduce(*reducer, named("w", own), mean, transport));
      std::vector<float> momentum(dimension, 1.0F);
      const Status masked = reducer->mask_sent("w", momentum);
      ASSERT_TRUE(masked) << masked.error().message;
      for (const std::uint32_t key : own.keys) EXPECT_EQ(momentum[key], 0.0F);
      EXPECT_EQ(std::ranges::count(momentum, 0.0F), 4);
    });
  }
}

// Where the mean is not rounded a second time (raw), the patterns give the same bits; a key that only one
// rank has, a sum in another order, or a key counted from a part's beginning would tell them apart.
TEST(Pairs, OfBothPatternsAreEqualWhereNothingIsRoundedTwice) {
  for (const int world : {1, 2, 3, 11}) {
    run_ranks(world, {}, [&](int rank, Transport& transport) {
      ReducerOptions raw;
      raw.policy.min_elements = 1000000;
      Updates gathered(rank, 0);
      Updates direct(rank, 0);
      const auto one = reducer_of("gather(fastsgd)", raw)
                           ->all_reduce(gathered.bucket(), {0, 0, true}, transport, in_seconds(20));
      const auto other = reducer_of("direct(fastsgd)", raw)
                             ->all_reduce(direct.bucket(), {1, 0, true}, transport, in_seconds(20));
      ASSERT_TRUE(one && other);
      for (std::size_t i = 0; i < kNames.size(); ++i) {
        EXPECT_TRUE(same(gathered.means[i], direct.means[i])) << kNames[i] << ", world " << world;
      }
      EXPECT_EQ(one->digest, other->digest);
    });
  }
}

// A caller's thread may flush subnormals and round up: the sums are the same.
TEST_P(KeyValue, TheCallersFloatingPointModeChangesNothing) {
  std::vector<Pairs> means(2);
  for (const bool strange : {false, true}) {
    run_ranks(2, {}, [&](int rank, Transport& transport) {
      const std::uint64_t before = FloatEnvironment::read_control();
      if (strange) {
        FloatEnvironment::write_control(before | FloatEnvironment::kFlushToZero | FloatEnvironment::kRoundUp);
      }
      Pairs own{{1, 2, 3}, {0x1p-140F, 0.1F, -0x1p-147F}, 50};
      if (rank == 1) own.values = {0x1.8p-139F, 0.7F, 0x1.4p-146F};
      Pairs mean;
      const auto report = reduce(*reducer_of(with("fastsgd")), named("w", own), mean, transport);
      FloatEnvironment::write_control(before);
      ASSERT_TRUE(report) << report.error().message;
      if (rank == 0) means[strange ? 1 : 0] = mean;
    });
  }
  EXPECT_EQ(means[0].values.at(0), 0x1p-139F);
  EXPECT_TRUE(same(means[0], means[1]));
}

TEST(Pairs, NeedAPatternAndACodecThatHaveTheForm) {
  for (const char* spec : {"gather(fp32)", "direct(bf16)", "ring(fastsgd)"}) {
    run_ranks(1, {}, [&](int rank, Transport& transport) {
      Updates updates(rank, 0);
      testing::expect_refused(
          reducer_of(spec)->all_reduce(updates.bucket(), {0, 0, true}, transport, in_seconds(5)),
          ErrorCode::kInvalidArgument,
          "take a codec that has the form and keeps no residual (fastsgd, "
          "logquant, sketchml), in the pattern direct or gather");
    });
  }
}

}  // namespace
}  // namespace deltawire::pairs_test
