// What all patterns share of a bucket: its report, its digest, its names, and the floating-point mode.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "base/float_environment.h"
#include "base/refusal_testing.h"
#include "reduce/buckets_in_flight.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::bucket_exchange_test {
namespace {

class InEveryPattern : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string spec(const std::string& codec) { return std::string(GetParam()) + "(" + codec + ")"; }
};

INSTANTIATE_TEST_SUITE_P(Patterns, InEveryPattern,
                         ::testing::Values("direct", "ring", "gather", "hierarchical:group=2"));

Named tensor(std::string_view name, std::vector<float>& values) {
  return {name, {values.data(), values.size(), DType::kF32}, 0};
}

TEST_P(InEveryPattern, ReportsAreOfTheBucketAlone) {
  run_ranks(2, {}, [](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec("fp32"));
    std::vector<std::uint64_t> bytes;
    for (std::uint64_t step = 0; step < 3; ++step) {
      std::vector<float> values(20000, static_cast<float>(rank));
      const Named one = tensor("w", values);
      const auto report = reducer->all_reduce(std::span(&one, 1), {step, 0, true}, transport, in_seconds(20));
      ASSERT_TRUE(report) << report.error().message;
      EXPECT_EQ(report->element_count, 20000u);
      EXPECT_GE(report->encode_seconds, 0.0);
      bytes.push_back(report->bytes_sent);
    }
    EXPECT_GT(bytes[0], 0u);
    EXPECT_EQ(bytes[1], bytes[0]);
    EXPECT_EQ(bytes[2], bytes[0]);
  });
}

// Of a step of two buckets whose values these are, on one rank.
std::uint64_t digest_of(const std::string& spec, float first, float second) {
  std::uint64_t digest = 0;
  run_ranks(1, {}, [&](int, Transport& transport) {
    const auto reducer = reducer_of(spec);
    std::vector<std::vector<float>> values{{first, 1.0F}, {second, 1.0F}};
    const std::vector<Named> named{tensor("a", values[0]), tensor("b", values[1])};
    for (std::uint32_t bucket = 0; bucket < 2; ++bucket) {
      const Status begun = reducer->begin(std::span(named).subspan(bucket, 1), {0, bucket, bucket == 1},
                                          transport, in_seconds(20));
      ASSERT_TRUE(begun) << begun.error().message;
    }
    ASSERT_TRUE(reducer->finish());
    const auto last = reducer->finish();
    ASSERT_TRUE(last) << last.error().message;
    digest = last->digest;
  });
  return digest;
}

TEST_P(InEveryPattern, TheDigestIsOfAllBucketsOfTheStep) {
  const std::uint64_t digest = digest_of(spec("fp32"), 1.0F, 2.0F);
  EXPECT_EQ(digest_of(spec("fp32"), 1.0F, 2.0F), digest);
  EXPECT_NE(digest_of(spec("fp32"), 3.0F, 2.0F), digest) << "the first bucket";
  EXPECT_NE(digest_of(spec("fp32"), 1.0F, 3.0F), digest) << "the second bucket";
  EXPECT_NE(digest_of(spec("fp32"), 2.0F, 1.0F), digest) << "their order";
}

// In the second step rank 1 says something else of what must be alike (0: it says nothing).
TEST_P(InEveryPattern, AStepCountsOnlyWhereTheCallersAgree) {
  for (const std::uint64_t other : {std::uint64_t{8}, std::uint64_t{0}}) {
    run_ranks(3, {}, [&](int rank, Transport& transport) {
      const auto reducer = reducer_of(spec("fp32"));
      for (std::uint64_t number = 0; number < 2; ++number) {
        std::vector<float> values(100, static_cast<float>(rank));
        const Named one = tensor("w", values);
        Step step{number, 0, true};
        step.agreed = number == 1 && rank == 1 ? other : 7;
        const auto report = reducer->all_reduce(std::span(&one, 1), step, transport, in_seconds(20));
        if (number == 0) {
          EXPECT_TRUE(report) << report.error().message;
          continue;
        }
        testing::expect_refused(report, ErrorCode::kMismatch, 1);
        EXPECT_EQ(values[0], static_cast<float>(rank)) << "the tensors have changed";
      }
    });
  }
}

// begin copies the names: what the residuals are kept under doesn't depend on the caller's text.
TEST_P(InEveryPattern, NamesAreCopied) {
  run_ranks(2, {}, [](int rank, Transport& transport) {
    std::vector<std::vector<std::byte>> states;
    for (const bool spoil : {false, true}) {
      const auto reducer = reducer_of(spec("onebit"));
      std::vector<float> values(20000, 1.0F);
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = static_cast<float>(i % 7) + static_cast<float>(rank);
      std::string name = "layer.weight";
      const Named one = tensor(name, values);
      const Step step{spoil ? 1u : 0u, 0, true};
      const Status begun = reducer->begin(std::span(&one, 1), step, transport, in_seconds(20));
      ASSERT_TRUE(begun) << begun.error().message;
      if (spoil) name.assign(name.size(), '?');
      const auto report = reducer->finish();
      ASSERT_TRUE(report) << report.error().message;
      states.push_back(*reducer->save());
    }
    EXPECT_EQ(states[0], states[1]);
  });
}

TEST_P(InEveryPattern, ItsNumberHas16Bits) {
  for (const std::uint32_t bucket : {0U, 8191U, 65535U, 65536U}) {
    run_ranks(2, {}, [&](int, Transport& transport) {
      std::vector<float> values(300, 1.0F);
      const Named one = tensor("w", values);
      const auto report = reducer_of(spec("fp32"))
                              ->all_reduce(std::span(&one, 1), {7, bucket, true}, transport, in_seconds(20));
      ASSERT_EQ(report.has_value(), bucket < 65536) << bucket;
      if (bucket == 65536) {
        EXPECT_EQ(report.error().code, ErrorCode::kInvalidArgument) << report.error().message;
      }
    });
  }
}

// A caller's thread may flush subnormals and round up: the mean is the same.
TEST_P(InEveryPattern, TheCallersFloatingPointModeChangesNothing) {
  std::vector<std::vector<float>> results(2);
  for (const bool strange : {false, true}) {
    run_ranks(2, {}, [&](int rank, Transport& transport) {
      const std::uint64_t before = FloatEnvironment::read_control();
      if (strange) {
        FloatEnvironment::write_control(before | FloatEnvironment::kFlushToZero | FloatEnvironment::kRoundUp);
      }
      std::vector<float> values{0x1p-140F, 0x1.000002p-126F, 0x1.8p-149F, 0.1F, -0x1p-149F, 3.0F};
      values.resize(20000, 0x1p-149F * static_cast<float>(3));
      const Named one = tensor("w", values);
      const auto reducer = reducer_of(spec("fp32"));
      const auto report = reducer->all_reduce(std::span(&one, 1), {0, 0, true}, transport, in_seconds(20));
      FloatEnvironment::write_control(before);
      ASSERT_TRUE(report) << report.error().message;
      if (rank == 0) results[strange ? 1 : 0] = values;
    });
  }
  ASSERT_EQ(results[0].size(), 20000u);
  EXPECT_EQ(results[0][0], 0x1p-140F);
  EXPECT_EQ(results[0], results[1]);
}

// The owner's side is taken back exactly: folded, the step would come twice, from the push and from the mean.
TEST_P(InEveryPattern, AFoldedStepComesOnce) {
  run_ranks(1, {}, [](int, Transport& transport) {
    if (!sends_own(GetParam())) return;  // which is never folded
    const auto reducer = reducer_of(spec("onebit"), folding());
    std::vector<float> values(300, 4.0F);
    const Named one = tensor("w", values);
    const Status begun = reducer->begin(std::span(&one, 1), {0, 0, true}, transport, in_seconds(20));
    ASSERT_TRUE(begun) << begun.error().message;
    // One rank waits for nobody: all is coded, and then the vote fails.
    transport.abort({ErrorCode::kAborted, "test", 0});
    ASSERT_FALSE(reducer->finish());
    EXPECT_EQ(values, std::vector<float>(300, 4.0F));
    values.assign(300, 2.0F);
    run_ranks(1, {}, [&](int, Transport& next) {
      const auto report = reducer->all_reduce(std::span(&one, 1), {0, 0, true}, next, in_seconds(20));
      ASSERT_TRUE(report) << report.error().message;
    });
    EXPECT_EQ(values, std::vector<float>(300, 6.0F));
  });
}

// Two ranks, so that `direct` cuts the tensor: each part is masked by what was sent of it, at its own place.
TEST_P(InEveryPattern, MomentumIsMaskedWhereElementsWereSent) {
  if (!sends_own(GetParam())) return;
  run_ranks(2, {}, [](int, Transport& transport) {
    const auto reducer = reducer_of(spec("sbc:p=0.0001"));
    std::vector<float> values(40000, 0.0F);
    for (const std::size_t at : {7U, 900U, 20010U, 39999U}) values[at] = 5.0F;
    const Named one = tensor("w", values);
    const auto report = reducer->all_reduce(std::span(&one, 1), {0, 0, true}, transport, in_seconds(20));
    ASSERT_TRUE(report) << report.error().message;
    std::vector<float> momentum(40000, 1.0F);
    const Status masked = reducer->mask_sent("w", momentum);
    ASSERT_TRUE(masked) << masked.error().message;
    for (std::size_t i = 0; i < momentum.size(); ++i) {
      const bool sent = i == 7 || i == 900 || i == 20010 || i == 39999;
      ASSERT_EQ(momentum[i], sent ? 0.0F : 1.0F) << i;
    }
  });
}

// Rules give a tensor with keys a codec that has the form; the parts that `direct` cuts follow the whole
// tensor.
TEST_P(InEveryPattern, RulesMayGiveKeyValueTensorsTheirOwnCodec) {
  if (!sends_own(GetParam())) return;
  run_ranks(2, {}, [](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec("ads* elements>=60000: fastsgd, rest fp32"));
    std::vector<float> dense(20000, static_cast<float>(rank));
    std::vector<std::uint32_t> keys{7, 59999};
    std::vector<float> values{1.0F, 1.0F};
    for (const std::uint64_t dimension : {60000U, 59999U}) {
      std::vector<Named> tensors{tensor("w", dense)};
      tensors.push_back({"ads", {values.data(), 2, DType::kF32, keys.data(), dimension}, 0});
      Pairs mean;
      const auto report =
          reducer->all_reduce({tensors, std::span(&mean, 1)}, {0, 0, true}, transport, in_seconds(20));
      ASSERT_EQ(report.has_value(), dimension == 60000) << dimension;
      if (!report) {
        EXPECT_NE(report.error().message.find("'ads' is in key-value form"), std::string::npos);
        continue;
      }
      EXPECT_EQ(mean.keys, keys);
      EXPECT_EQ(dense, std::vector<float>(20000, 0.5F));
    }
  });
}

TEST(PairsBucket, TheDigestIsOfKeysAndValues) {
  const auto digest = [](std::uint32_t key, float value) {
    std::uint64_t found = 0;
    run_ranks(1, {}, [&](int, Transport& transport) {
      const Named pairs{"w", {&value, 1, DType::kF32, &key, 1000}, 0};
      Pairs mean;
      const auto report = reducer_of("gather(fastsgd)")
                              ->all_reduce({std::span(&pairs, 1), std::span(&mean, 1)}, {0, 0, true},
                                           transport, in_seconds(20));
      ASSERT_TRUE(report) << report.error().message;
      found = report->digest;
    });
    return found;
  };
  EXPECT_EQ(digest(4, 1.0F), digest(4, 1.0F));
  EXPECT_NE(digest(4, 1.0F), digest(5, 1.0F));
  EXPECT_NE(digest(4, 1.0F), digest(4, 2.0F));
}

// A bucket's memory is used again: key-value tensors leave nothing behind for dense ones.
TEST_P(InEveryPattern, DenseTensorsMayFollowKeyValueOnes) {
  if (!sends_own(GetParam())) return;
  run_ranks(2, {}, [](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec("fastsgd"));
    for (std::uint64_t step = 0; step < 4; ++step) {
      if (step % 2 == 0) {
        std::uint32_t key = 4;
        float value = 2.0F;
        const Named pairs{"p", {&value, 1, DType::kF32, &key, 1000}, 0};
        Pairs mean;
        const auto report = reducer->all_reduce({std::span(&pairs, 1), std::span(&mean, 1)}, {step, 0, true},
                                                transport, in_seconds(20));
        ASSERT_TRUE(report) << report.error().message;
        EXPECT_EQ(mean.keys, std::vector<std::uint32_t>{4});
        EXPECT_EQ(mean.values, std::vector<float>{2.0F});
      } else {
        std::vector<float> values(10, static_cast<float>(2 * rank));
        const Named one = tensor("d", values);
        const auto report =
            reducer->all_reduce(std::span(&one, 1), {step, 0, true}, transport, in_seconds(20));
        ASSERT_TRUE(report) << report.error().message;
        EXPECT_EQ(values, std::vector<float>(10, 1.0F));  // below min_elements: raw
      }
    }
  });
}

// A bucket that comes again is not cut again; one that differs in anything is. Values lie elsewhere in every
// step.
TEST_P(InEveryPattern, WhatDiffersFromTheLastBucketIsCutAnew) {
  struct Shape {
    const char* name;
    std::uint64_t count;
    std::uint64_t first = 0;
    std::vector<std::uint64_t> dims = {};
  };
  const std::vector<Shape> shapes{{"w", 40000},
                                  {"w", 40000},
                                  {"w", 39999},
                                  {"v", 39999},
                                  {"v", 300},
                                  {"v", 300, 0, {30, 10}},
                                  {"v", 300, 0, {10, 30}},
                                  {"v", 300, 7},
                                  {"w", 40000}};
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(spec("dims=2: int8, rest fp32"));
    std::vector<std::vector<float>> kept;  // so that no memory comes again
    for (std::uint64_t step = 0; step < shapes.size(); ++step) {
      const Shape& shape = shapes[step];
      std::vector<float>& values = kept.emplace_back(shape.count);
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>((i + step) % 128) + static_cast<float>(2 * rank);
      }
      Named one = tensor(shape.name, values);
      one.first = shape.first;
      one.tensor.dims = shape.dims;
      const auto report = reducer->all_reduce(std::span(&one, 1), {step, 0, true}, transport, in_seconds(20));
      ASSERT_TRUE(report) << report.error().message;
      double error = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double mean = static_cast<double>((i + step) % 128) + 1.0;
        error = std::max(error, std::abs(static_cast<double>(values[i]) - mean));
      }
      EXPECT_LE(error, shape.dims.size() == 2 ? 1.1 : 0.0) << step;
      EXPECT_EQ(error > 0, shape.dims.size() == 2) << step << ": int8, or fp32";
    }
  });
}

// What an earlier world cut is not used again.
TEST_P(InEveryPattern, AfterALoadTheWorldMayBeAnother) {
  std::vector<std::unique_ptr<Reducer>> reducers(3);
  for (auto& reducer : reducers) reducer = reducer_of(spec("fp32"));
  const auto fresh = reducers[0]->save();
  ASSERT_TRUE(fresh);
  for (const int world : {2, 3}) {
    run_ranks(world, {}, [&](int rank, Transport& transport) {
      std::vector<float> values(40000, static_cast<float>(rank));
      const Named one = tensor("w", values);
      const auto report = reducers[static_cast<std::size_t>(rank)]->all_reduce(
          std::span(&one, 1), {0, 0, true}, transport, in_seconds(20));
      ASSERT_TRUE(report) << report.error().message;
      // fp32 has the sum of 0, 1, ... exactly; only the scale is rounded.
      EXPECT_NEAR(values.front(), static_cast<float>(world - 1) / 2, 1e-6);
      EXPECT_EQ(values.front(), values.back());
    });
    for (auto& reducer : reducers) ASSERT_TRUE(reducer->load(*fresh));
  }
}

TEST(OwnTensors, AreTheSameWhateverTheirValues) {
  const std::vector<std::uint64_t> dims{2, 3};
  const std::vector<std::uint64_t> other_dims{3, 2};
  std::vector<float> values(6);
  std::uint32_t key = 0;
  const Named one{"w", {values.data(), 6, DType::kF32, nullptr, 0, nullptr, dims}, 4, 100, 2};
  OwnTensors own;
  own.assign(std::span(&one, 1));
  const auto same = [&](const std::function<void(Named&)>& change) {
    Named changed = one;
    change(changed);
    return own.same(std::span(&changed, 1));
  };
  EXPECT_TRUE(same([](Named&) {}));
  EXPECT_TRUE(same([](Named& t) { t.tensor.values = nullptr; }));
  EXPECT_TRUE(same([&](Named& t) { t.tensor.significance = values.data(); }));
  EXPECT_FALSE(same([](Named& t) { t.name = "v"; }));
  EXPECT_FALSE(same([](Named& t) { t.first = 5; }));
  EXPECT_FALSE(same([](Named& t) { t.tensor.count = 7; }));
  EXPECT_FALSE(same([](Named& t) { t.tensor.dtype = DType::kBF16; }));
  EXPECT_FALSE(same([&](Named& t) { t.tensor.dims = other_dims; }));
  EXPECT_FALSE(same([](Named& t) { t.elements_of_whole = 101; }));
  EXPECT_FALSE(same([](Named& t) { t.dims_of_whole = 3; }));
  EXPECT_FALSE(same([&](Named& t) { t.tensor = {values.data(), 1, DType::kF32, &key, 6, nullptr, dims}; }));
  EXPECT_FALSE(own.same({}));
}

}  // namespace
}  // namespace deltawire::bucket_exchange_test
