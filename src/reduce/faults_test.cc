// What the patterns do when a rank, a link or the input fails: an error on every rank, the suspect named, the
// tensors untouched, no gradient lost.
#include <array>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "reduce/rank_threads_testing.h"
#include "reduce/vote.h"
#include "transport/links/faulty_link_testing.h"

namespace deltawire::faults_test {
namespace {

struct Outcome {
  Error error;
  bool failed = false;
  std::vector<float> values;
};

constexpr int kWorld = 3;
constexpr std::array<std::uint64_t, 2> kDims{280, 250};
constexpr std::size_t kCount = kDims[0] * kDims[1];

// One step on every rank; `prepare` may spoil a rank's values.
std::vector<Outcome> one_step(const std::string& spec, const std::vector<LinkOptions>& links,
                              const std::function<void(int, std::vector<float>&)>& prepare,
                              int deadline_seconds = 3) {
  std::vector<Outcome> outcomes(kWorld);
  run_ranks(kWorld, links, [&](int rank, Transport& transport) {
    Outcome& own = outcomes[static_cast<std::size_t>(rank)];
    own.values.assign(kCount, 1.0F);
    prepare(rank, own.values);
    Named tensor{"fc.weight", {own.values.data(), kCount, DType::kF32}, 0};
    tensor.tensor.dims = kDims;
    const auto reducer = reducer_of(spec);
    const auto report =
        reducer->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(deadline_seconds));
    own.failed = !report;
    if (!report) own.error = report.error();
  });
  return outcomes;
}

void expect_all_name(const std::vector<Outcome>& outcomes, int suspect) {
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_TRUE(outcomes[rank].failed) << "rank " << rank;
    EXPECT_EQ(outcomes[rank].error.suspect, suspect)
        << "rank " << rank << ": " << outcomes[rank].error.message;
  }
}

// By pattern.
class Faults : public ::testing::TestWithParam<std::string> {
 protected:
  static std::string with(const std::string& codec) { return GetParam() + "(" + codec + ")"; }
};

INSTANTIATE_TEST_SUITE_P(Patterns, Faults,
                         ::testing::Values("direct", "ring", "gather", "hierarchical:group=2"));

TEST_P(Faults, NaNOnOneRankFailsAllAndNamesIt) {
  const auto outcomes = one_step(with("onebit"), {}, [](int rank, std::vector<float>& values) {
    if (rank == 1) values[5] = std::numeric_limits<float>::quiet_NaN();
  });
  expect_all_name(outcomes, 1);
  testing::expect_error(outcomes[1].error, ErrorCode::kNotFinite, {}, {"let such steps pass"});
  // Untouched: still what the caller put in.
  EXPECT_EQ(outcomes[0].values, std::vector<float>(kCount, 1.0F));
}

// Those of a matrix that is sent by its factors, too.
class FaultyLinks : public Faults {};

INSTANTIATE_TEST_SUITE_P(Patterns, FaultyLinks,
                         ::testing::Values("direct", "ring", "gather", "hierarchical:group=2",
                                           "powersgd:rank=16"));

TEST_P(FaultyLinks, FlippedBitIsDetectedAndTheSenderNamed) {
  for (const std::uint64_t at_byte : {5u, 40u, 300u, 5000u}) {
    std::vector<LinkOptions> links(kWorld);
    links[2].wrap = test::faulty({test::LinkFault::Kind::kFlip, 0, at_byte, {}});
    const auto outcomes = one_step(with("fp32"), links, [](int, std::vector<float>&) {});
    expect_all_name(outcomes, 2);
    EXPECT_EQ(outcomes[0].values, std::vector<float>(kCount, 1.0F));
  }
}

TEST_P(Faults, CutLinkFailsAll) {
  std::vector<LinkOptions> links(kWorld);
  links[2].wrap = test::faulty({test::LinkFault::Kind::kCut, 0, 1000, {}});
  const auto outcomes = one_step(with("fp32"), links, [](int, std::vector<float>&) {});
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.failed);
}

TEST_P(FaultyLinks, SwallowedBytesEndAtTheDeadline) {
  std::vector<LinkOptions> links(kWorld);
  links[2].wrap = test::faulty({test::LinkFault::Kind::kDrop, 0, 1000, {}});
  const auto outcomes = one_step(with("fp32"), links, [](int, std::vector<float>&) {}, 2);
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.error.code, ErrorCode::kTimeout) << outcome.error.message;
  }
}

TEST_P(Faults, SlowLinksOnlyTakeTime) {
  std::vector<LinkOptions> links(kWorld);
  links[1].wrap = test::faulty({test::LinkFault::Kind::kDelay, 0, 0, std::chrono::milliseconds(30)});
  const auto outcomes = one_step(with("onebit"), links, [](int, std::vector<float>&) {}, 20);
  for (const Outcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.error.message;
}

TEST_P(Faults, OtherSettingsAreNamed) {
  std::vector<Outcome> outcomes(2);
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    std::vector<float> values(kCount, 1.0F);
    const Named tensor{"fc.weight", {values.data(), kCount, DType::kF32}, 0};
    const auto reducer = reducer_of(with(rank == 0 ? "sbc:p=0.1" : "sbc:p=0.2"));
    const auto report = reducer->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(5));
    Outcome& own = outcomes[static_cast<std::size_t>(rank)];
    own.failed = !report;
    if (!report) own.error = report.error();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.failed);
    EXPECT_NE(outcome.error.message.find("params_hash"), std::string::npos) << outcome.error.message;
  }
}

// A bucket that fails takes along those before it that are not finished: no tensor has changed.
TEST_P(Faults, UnfinishedBucketsAreUntouched) {
  run_ranks(kWorld, {}, [&](int rank, Transport& transport) {
    std::vector<float> first(1000, static_cast<float>(rank));
    std::vector<float> second(kCount, static_cast<float>(rank));
    if (rank == 1) second[kCount - 1] = std::numeric_limits<float>::infinity();
    const Named early{"bias", {first.data(), first.size(), DType::kF32}, 0};
    const Named late{"fc.weight", {second.data(), kCount, DType::kF32}, 0};
    const auto reducer = reducer_of(with("onebit"));
    Status begun = reducer->begin(std::span(&early, 1), {0, 0, false}, transport, in_seconds(5));
    if (begun) begun = reducer->begin(std::span(&late, 1), {0, 1, true}, transport, in_seconds(5));
    // A ring's owner finds it when it encodes, which may be while the first bucket is finished.
    std::size_t finished = 0;
    while (begun && finished < 2) {
      const auto report = reducer->finish();
      if (!report) begun = forward_error(report);
      if (report) ++finished;
    }
    ASSERT_FALSE(begun);
    EXPECT_EQ(begun.error().suspect, 1) << begun.error().message;
    EXPECT_EQ(reducer->finish().error().code, ErrorCode::kState) << "in flight";
    if (finished == 0) {
      EXPECT_EQ(first, std::vector<float>(1000, static_cast<float>(rank)));
    }
    EXPECT_EQ(second[0], static_cast<float>(rank));
    EXPECT_EQ(second[kCount / 2], static_cast<float>(rank));
    EXPECT_LT(finished, 2u);
  });
}

TEST_P(Faults, GarbageIsRefusedAndItsSenderNamed) {
  for (const std::size_t length : {0u, 3u, 64u, 1000u}) {
    run_ranks(2, {}, [&](int rank, Transport& transport) {
      std::vector<float> values(kCount, 1.0F);
      const Named tensor{"fc.weight", {values.data(), kCount, DType::kF32}, 0};
      if (rank == 0) {
        const auto report =
            reducer_of(with("bf16"))->all_reduce(std::span(&tensor, 1), {}, transport, in_seconds(5));
        ASSERT_FALSE(report);
        EXPECT_EQ(report.error().suspect, 1) << report.error().message;
        EXPECT_TRUE(report.error().code == ErrorCode::kTruncated ||
                    report.error().code == ErrorCode::kCorrupt)
            << report.error().message;
        EXPECT_EQ(values, std::vector<float>(kCount, 1.0F));
      } else {
        const std::vector<std::byte> garbage(length, std::byte{0x57});
        const Bytes piece(garbage);
        const Handle sent = transport.post_send(0, tag_of({}, 0), std::span(&piece, 1));
        const Handle never = transport.post_recv(0, 12345, {});
        (void)transport.wait(sent, in_seconds(5));
        (void)transport.wait(never, in_seconds(5));
      }
    });
  }
}

TEST_P(Faults, OtherTensorsAreNamed) {
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    std::vector<float> values(kCount, 1.0F);
    const std::uint64_t count = rank == 0 ? kCount : kCount - 320;
    const Named tensor{"fc.weight", {values.data(), count, DType::kF32}, 0};
    const auto report =
        reducer_of(with("onebit"))->all_reduce(std::span(&tensor, 1), {}, transport, in_seconds(5));
    ASSERT_FALSE(report);
    // Within a group gradients are fp32: there the length of a message may say it before a hash.
    const bool by_length = GetParam().starts_with("hierarchical") && report.error().code == ErrorCode::kLimit;
    EXPECT_TRUE(by_length || report.error().code == ErrorCode::kMismatch) << report.error().message;
  });
}

// Exact reverts: the step has not been, whatever the pattern.
TEST_P(Faults, AnExactRevertLeavesNoTrace) {
  std::vector<LinkOptions> broken(2);
  broken[0].wrap = test::faulty({test::LinkFault::Kind::kFlip, 1, 100, {}});
  std::vector<std::vector<float>> results;
  for (const bool failing : {true, false}) {
    std::vector<std::unique_ptr<Reducer>> reducers;
    ReducerOptions options;
    options.revert = Revert::kExact;
    for (int rank = 0; rank < 2; ++rank) reducers.push_back(reducer_of(with("onebit"), options));
    const auto step = [&](const std::vector<LinkOptions>& links, std::uint64_t number, float value) {
      std::vector<float> result;
      run_ranks(2, links, [&](int rank, Transport& transport) {
        std::vector<float> values(kCount);
        for (std::size_t i = 0; i < kCount; ++i) values[i] = value * static_cast<float>(i % 7 + 1);
        const Named tensor{"fc.weight", {values.data(), kCount, DType::kF32}, 0};
        const auto report = reducers[static_cast<std::size_t>(rank)]->all_reduce(
            std::span(&tensor, 1), {number, 0, true}, transport, in_seconds(5));
        EXPECT_EQ(!report, !links.empty());
        if (rank == 0) result = values;
      });
      return result;
    };
    step({}, 0, 1.0F);
    if (failing) step(broken, 1, 5.0F);
    results.push_back(step({}, 2, -0.3F));
  }
  EXPECT_TRUE(results[0] == results[1]);
}

TEST(Arguments, AreChecked) {
  run_ranks(1, {}, [](int, Transport& transport) {
    std::vector<float> values(10);
    const std::vector<Named> twice{{"w", {values.data(), 5, DType::kF32}, 0},
                                   {"w", {values.data() + 5, 5, DType::kF32}, 0}};
    testing::expect_refused(reducer_of("fp32")->begin(twice, {}, transport, in_seconds(2)),
                            ErrorCode::kInvalidArgument);
    const std::vector<Named> shared{{"v", {values.data(), 5, DType::kF32}, 0},
                                    {"w", {values.data() + 4, 5, DType::kF32}, 0}};
    testing::expect_refused(reducer_of("fp32")->begin(shared, {}, transport, in_seconds(2)),
                            ErrorCode::kInvalidArgument);
    const Named unknown{"w", {values.data(), 5, static_cast<DType>(9)}, 0};
    EXPECT_EQ(reducer_of("fp32")->begin(std::span(&unknown, 1), {}, transport, in_seconds(2)).error().code,
              ErrorCode::kUnsupportedDType);
    std::uint32_t key = 3;
    const Named pairs{"w", {values.data(), 1, DType::kF32, &key, 10}, 0};
    EXPECT_EQ(reducer_of("fastsgd")->begin(std::span(&pairs, 1), {}, transport, in_seconds(2)).error().code,
              ErrorCode::kInvalidArgument);
    EXPECT_EQ(reducer_of("fp32")->finish().error().code, ErrorCode::kState);
    EXPECT_EQ(reducer_of("fp32")->advance().error().code, ErrorCode::kState);
  });
  for (const int threads : {0, 1, 64}) {
    ReducerOptions options;
    options.threads = threads;
    EXPECT_TRUE(make_reducer("gcomp", options)) << threads;
  }
  for (const int threads : {-1, 65}) {
    ReducerOptions options;
    options.threads = threads;
    const auto refused = make_reducer("gcomp", options);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("threads=" + std::to_string(threads)), std::string::npos);
  }
  const Error unknown = make_reducer("rnig(fp32)").error();
  testing::expect_error(unknown, ErrorCode::kInvalidArgument, {}, {"direct, ring, gather"});
  EXPECT_EQ(make_reducer("direct(fp33)").error().code, ErrorCode::kUnknownCodec);
  EXPECT_EQ(make_reducer("direct(fp32").error().code, ErrorCode::kInvalidArgument);
  for (const std::string pattern : {"ring", "hierarchical:group=8"}) {  // of which powersgd alone needs none
    EXPECT_NE(make_reducer(pattern).error().message.find("write e.g. " + pattern + "(bf16)"),
              std::string::npos);
  }
  EXPECT_EQ(make_reducer("").error().code, ErrorCode::kInvalidArgument);
}

TEST(Vote, DifferentDigestsNameTheMinority) {
  std::vector<Error> errors(3);
  run_ranks(3, {}, [&](int rank, Transport& transport) {
    const auto status = vote({4, 0, true}, rank == 1 ? 7 : 8, transport, in_seconds(5));
    if (!status) errors[static_cast<std::size_t>(rank)] = status.error();
  });
  for (const Error& error : errors) {
    testing::expect_error(error, ErrorCode::kMismatch, 1);
  }
}

TEST(Vote, DifferentStepsAreNamed) {
  std::vector<int> failed(2);
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    const Step step{4 + static_cast<std::uint64_t>(rank), 0, true};
    failed[static_cast<std::size_t>(rank)] = vote(step, 8, transport, in_seconds(5)) ? 0 : 1;
  });
  EXPECT_TRUE(failed[0] != 0 && failed[1] != 0);
}

}  // namespace
}  // namespace deltawire::faults_test
