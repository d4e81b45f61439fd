// What the patterns do when a rank, a link or the input fails: an error on every rank, the suspect named, the
// tensors untouched, no gradient lost.
#include <cmath>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reduce/rank_threads.h"
#include "reduce/vote.h"

namespace deltawire {
namespace {

struct Outcome {
  Error error;
  bool failed = false;
  std::vector<float> values;
};

constexpr int kWorld = 3;
constexpr std::size_t kCount = 70000;

// One step on every rank; `prepare` may spoil a rank's values.
std::vector<Outcome> one_step(const std::string& spec, const std::vector<LinkOptions>& links,
                              const std::function<void(int, std::vector<float>&)>& prepare,
                              int deadline_seconds = 3) {
  std::vector<Outcome> outcomes(kWorld);
  run_ranks(kWorld, links, [&](int rank, Transport& transport) {
    Outcome& own = outcomes[static_cast<std::size_t>(rank)];
    own.values.assign(kCount, 1.0F);
    prepare(rank, own.values);
    const Named tensor{"fc.weight", {own.values.data(), kCount, DType::kF32}, 0};
    const auto reducer = reducer_of(spec);
    const auto report =
        reducer->all_reduce(std::span(&tensor, 1), {0, 0, 0, true}, transport, in_seconds(deadline_seconds));
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

INSTANTIATE_TEST_SUITE_P(Patterns, Faults, ::testing::Values("direct", "ring", "gather"));

TEST_P(Faults, NaNOnOneRankFailsAllAndNamesIt) {
  const auto outcomes = one_step(with("3lc"), {}, [](int rank, std::vector<float>& values) {
    if (rank == 1) values[5] = std::numeric_limits<float>::quiet_NaN();
  });
  expect_all_name(outcomes, 1);
  EXPECT_EQ(outcomes[1].error.code, ErrorCode::kNotFinite);
  // Untouched: still what the caller put in.
  EXPECT_EQ(outcomes[0].values, std::vector<float>(kCount, 1.0F));
}

TEST_P(Faults, FlippedBitIsDetectedAndTheSenderNamed) {
  for (const std::uint64_t at_byte : {5u, 40u, 300u, 5000u}) {
    std::vector<LinkOptions> links(kWorld);
    links[2].faults.push_back({LinkFault::Kind::kFlip, 0, at_byte, {}});
    const auto outcomes = one_step(with("fp32"), links, [](int, std::vector<float>&) {});
    expect_all_name(outcomes, 2);
    EXPECT_EQ(outcomes[0].values, std::vector<float>(kCount, 1.0F));
  }
}

TEST_P(Faults, CutLinkFailsAll) {
  std::vector<LinkOptions> links(kWorld);
  links[2].faults.push_back({LinkFault::Kind::kCut, 0, 1000, {}});
  const auto outcomes = one_step(with("fp32"), links, [](int, std::vector<float>&) {});
  for (const Outcome& outcome : outcomes) EXPECT_TRUE(outcome.failed);
}

TEST_P(Faults, SwallowedBytesEndAtTheDeadline) {
  std::vector<LinkOptions> links(kWorld);
  links[2].faults.push_back({LinkFault::Kind::kDrop, 0, 1000, {}});
  const auto outcomes = one_step(with("fp32"), links, [](int, std::vector<float>&) {}, 2);
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.error.code, ErrorCode::kTimeout) << outcome.error.message;
  }
}

TEST_P(Faults, SlowLinksOnlyTakeTime) {
  std::vector<LinkOptions> links(kWorld);
  links[1].faults.push_back({LinkFault::Kind::kDelay, 0, 0, std::chrono::milliseconds(30)});
  const auto outcomes = one_step(with("3lc"), links, [](int, std::vector<float>&) {}, 20);
  for (const Outcome& outcome : outcomes) EXPECT_FALSE(outcome.failed) << outcome.error.message;
}

TEST_P(Faults, OtherSettingsAreNamed) {
  std::vector<Outcome> outcomes(2);
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    std::vector<float> values(kCount, 1.0F);
    const Named tensor{"fc.weight", {values.data(), kCount, DType::kF32}, 0};
    const auto reducer = reducer_of(with(rank == 0 ? "3lc:s=1.5" : "3lc:s=1.75"));
    const auto report = reducer->all_reduce(std::span(&tensor, 1), {0, 0, 0, true}, transport, in_seconds(5));
    Outcome& own = outcomes[static_cast<std::size_t>(rank)];
    own.failed = !report;
    if (!report) own.error = report.error();
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_TRUE(outcome.failed);
    EXPECT_NE(outcome.error.message.find("params_hash"), std::string::npos) << outcome.error.message;
  }
}

// A failed step is folded back: what was sent in vain is sent with the next step, on a new mesh. The ring
// reverts exactly: the failed step's gradient is the caller's to use again.
TEST_P(Faults, WhatAFailedStepLeaves) {
  const float expected = GetParam() == "ring" ? 2.0F : 3.0F;  // 1 of the failed step + 2 of this one
  std::vector<std::unique_ptr<Reducer>> reducers;
  for (int rank = 0; rank < 2; ++rank) reducers.push_back(reducer_of(with("3lc")));
  std::vector<LinkOptions> broken(2);
  broken[0].faults.push_back({LinkFault::Kind::kFlip, 1, 2000, {}});
  const auto step = [&](const std::vector<LinkOptions>& links, std::uint64_t number, float value,
                        bool fails) {
    run_ranks(2, links, [&](int rank, Transport& transport) {
      std::vector<float> values(kCount, value);
      const Named tensor{"fc.weight", {values.data(), kCount, DType::kF32}, 0};
      const auto report = reducers[static_cast<std::size_t>(rank)]->all_reduce(
          std::span(&tensor, 1), {number, 0, 0, true}, transport, in_seconds(5));
      EXPECT_EQ(!report, fails);
      if (report) {
        for (const float got : values) ASSERT_EQ(got, expected);
      }
    });
  };
  step(broken, 0, 1.0F, true);
  step({}, 1, 2.0F, false);
}

TEST(Arguments, AreChecked) {
  run_ranks(1, {}, [](int, Transport& transport) {
    std::vector<float> values(10);
    const std::vector<Named> twice{{"w", {values.data(), 5, DType::kF32}, 0},
                                   {"w", {values.data() + 5, 5, DType::kF32}, 0}};
    const auto doubled = reducer_of("fp32")->begin(twice, {}, transport, in_seconds(2));
    ASSERT_FALSE(doubled);
    EXPECT_EQ(doubled.error().code, ErrorCode::kInvalidArgument);
    const Named half{"w", {values.data(), 5, DType::kF16}, 0};
    EXPECT_EQ(reducer_of("fp32")->begin(std::span(&half, 1), {}, transport, in_seconds(2)).error().code,
              ErrorCode::kUnsupportedDType);
    std::uint32_t key = 3;
    const Named pairs{"w", {values.data(), 1, DType::kF32, &key, 10}, 0};
    EXPECT_EQ(
        reducer_of("gather(fp32)")->begin(std::span(&pairs, 1), {}, transport, in_seconds(2)).error().code,
        ErrorCode::kInvalidArgument);
    EXPECT_EQ(reducer_of("fp32")->finish().error().code, ErrorCode::kState);
  });
  EXPECT_EQ(make_reducer("rnig(fp32)").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(make_reducer("direct(fp33)").error().code, ErrorCode::kUnknownCodec);
  EXPECT_EQ(make_reducer("direct(fp32").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(make_reducer("").error().code, ErrorCode::kInvalidArgument);
}

TEST(Vote, DifferentDigestsNameTheMinority) {
  std::vector<Error> errors(3);
  run_ranks(3, {}, [&](int rank, Transport& transport) {
    const auto status = vote({4, 0, 0, true}, rank == 1 ? 7 : 8, transport, in_seconds(5));
    if (!status) errors[static_cast<std::size_t>(rank)] = status.error();
  });
  for (const Error& error : errors) {
    EXPECT_EQ(error.code, ErrorCode::kMismatch);
    EXPECT_EQ(error.suspect, 1);
  }
}

TEST(Vote, DifferentStepsAreNamed) {
  std::vector<int> failed(2);
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    const Step step{4, static_cast<std::uint32_t>(rank), 0, true};
    failed[static_cast<std::size_t>(rank)] = vote(step, 8, transport, in_seconds(5)) ? 0 : 1;
  });
  EXPECT_TRUE(failed[0] != 0 && failed[1] != 0);
}

}  // namespace
}  // namespace deltawire
