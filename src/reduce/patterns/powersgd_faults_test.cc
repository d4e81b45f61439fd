// `powersgd` when something goes wrong: no gradient is lost or doubled, no step is half done, all ranks
// alike.
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/refusal_testing.h"
#include "reduce/patterns/powersgd_testing.h"
#include "reduce/rank_threads_testing.h"
#include "transport/links/faulty_link_testing.h"

namespace deltawire::powersgd_faults_test {
namespace {

using namespace testing;
using Values = std::vector<float>;

constexpr int kWorld = 3;
const char* const kSpec = "powersgd:rank=4(fp32)";
const float kNaN = std::numeric_limits<float>::quiet_NaN();
const float kInfinity = std::numeric_limits<float>::infinity();

struct Outcome {
  Tensors tensors;
  bool failed = false;
  bool finite = true;
  Error error;
};

// The ranks of a job, and their steps.
class Job {
 public:
  explicit Job(const ReducerOptions& options = {}, const std::string& spec = kSpec)
      : reducers_(reducers_of(spec, kWorld, options)) {}

  // Two buckets: what is shaped, in halves. `fill` may change a rank's gradients, or their scale.
  std::vector<Outcome> step(std::uint64_t number, const std::function<void(int, Tensors&)>& fill = {},
                            const std::vector<LinkOptions>& links = {}, int deadline_seconds = 60,
                            float scale = 1.0F) {
    std::vector<Outcome> outcomes(kWorld);
    run_ranks(kWorld, links, [&](int rank, Transport& transport) {
      Outcome& own = outcomes[static_cast<std::size_t>(rank)];
      own.tensors = shaped_gradients(rank, number);
      if (fill) fill(rank, own.tensors);
      const std::vector<Named> all = named_shaped(own.tensors);
      Reducer& reducer = *reducers_[static_cast<std::size_t>(rank)];
      const auto first = std::span(all).first(5);
      const auto second = std::span(all).subspan(5);
      Status done = reducer.begin(first, {number, 0, false, scale}, transport, in_seconds(deadline_seconds));
      if (done)
        done = reducer.begin(second, {number, 1, true, scale}, transport, in_seconds(deadline_seconds));
      for (int bucket = 0; done && bucket < 2; ++bucket) {
        const auto report = reducer.finish();
        if (report) own.finite = report->finite;
        if (!report) done = forward_error(report);
      }
      own.failed = !done;
      if (!done) own.error = done.error();
    });
    return outcomes;
  }

  std::vector<std::vector<std::byte>> states() const { return deltawire::states(reducers_); }

 private:
  Reducers reducers_;
};

std::vector<Tensors> gradients_of_all(std::uint64_t step) {
  std::vector<Tensors> all;
  for (int rank = 0; rank < kWorld; ++rank) all.push_back(shaped_gradients(rank, step));
  return all;
}

void expect_means(const std::vector<Outcome>& outcomes, const Tensors& wanted) {
  for (const Outcome& outcome : outcomes) {
    ASSERT_FALSE(outcome.failed) << outcome.error.message;
    for (std::size_t t = 0; t < wanted.size(); ++t) {
      ASSERT_TRUE(outcome.tensors[t] == wanted[t]) << shaped_tensors()[t].name;
    }
  }
}

// A line that breaks after so many bytes: in the first round, in the second, with one bucket ended or none.
std::vector<LinkOptions> broken_at(std::uint64_t byte) {
  std::vector<LinkOptions> links(kWorld);
  links[2].wrap = test::faulty({test::LinkFault::Kind::kCut, 0, byte, {}});
  return links;
}

// In brief every second.
std::vector<std::uint64_t> places() {
  return whole_or_brief<std::vector<std::uint64_t>>({100, 3000, 6000, 8000, 9000, 10000, 11000, 12000},
                                                    {100, 6000, 9000, 11000});
}

// The step's input stays, bit for bit, and leaves with the next steps.
TEST(PowerSgdFaults, AFoldedStepIsSentLater) {
  for (const std::uint64_t place : places()) {
    Job job(folding());
    PowerSgdModel model("fp32", kWorld);
    expect_means(job.step(0), model.mean(gradients_of_all(0), 0));
    const auto failed = job.step(1, {}, broken_at(place));
    std::size_t failures = 0;
    for (const Outcome& outcome : failed) failures += outcome.failed ? 1 : 0;
    if (failures == 0) continue;  // the line outlived the step
    ASSERT_EQ(failures, static_cast<std::size_t>(kWorld)) << place;
    std::vector<Tensors> kept = gradients_of_all(1);
    bool all_begun = true;
    const auto states = job.states();
    model.fold(kept);
    for (int rank = 0; rank < kWorld; ++rank) {
      const auto residuals = testing::saved_residuals(states[static_cast<std::size_t>(rank)]);
      for (std::size_t t = 0; t < shaped_tensors().size(); ++t) {
        if (!shaped_tensors()[t].is_compressed) continue;
        // The second bucket of a rank that had heard of the failure before was never begun.
        const bool is_kept = residuals.at(shaped_tensors()[t].name) == model.residual(rank, t);
        if (t < 5) {
          EXPECT_TRUE(is_kept) << place;
        } else {
          all_begun = all_begun && is_kept;
        }
      }
    }
    if (!all_begun) continue;
    expect_means(job.step(2), model.mean(gradients_of_all(2), 2));
    expect_means(job.step(3), model.mean(gradients_of_all(3), 3));
  }
}

TEST(PowerSgdFaults, AnExactRevertLeavesNoTrace) {
  for (const std::uint64_t place : places()) {
    Job job;
    PowerSgdModel model("fp32", kWorld);
    for (std::uint64_t step = 0; step < 2; ++step) {
      expect_means(job.step(step), model.mean(gradients_of_all(step), step));
    }
    const auto before = job.states();
    const auto failed = job.step(2, {}, broken_at(place), 60, 4.0F);  // its scale is taken back, too
    if (!failed[0].failed) continue;
    EXPECT_TRUE(job.states() == before) << place;
    expect_means(job.step(2), model.mean(gradients_of_all(2), 2));
    expect_means(job.step(3), model.mean(gradients_of_all(3), 3));
  }
}

// Folded like that of the others, less what is not finite.
TEST(PowerSgdFaults, NaNOnOneRankFailsAllAndNamesItsElement) {
  for (const float bad : {kNaN, -kInfinity, 0x1p125F}) {
    Job job(folding());
    PowerSgdModel model("fp32", kWorld);
    expect_means(job.step(0), model.mean(gradients_of_all(0), 0));
    const auto spoil = [bad](int rank, Tensors& tensors) {
      if (rank == 1) tensors[0][4711] = bad;
    };
    const auto failed = job.step(1, spoil);
    for (const Outcome& outcome : failed) {
      EXPECT_TRUE(outcome.failed);
      EXPECT_EQ(outcome.error.suspect, 1) << outcome.error.message;
    }
    EXPECT_EQ(failed[1].error.code, ErrorCode::kNotFinite);
    for (const char* text : {"'conv.weight'", "element 4711", "let such steps pass"}) {
      EXPECT_NE(failed[1].error.text().find(text), std::string::npos) << failed[1].error.text();
    }
    std::vector<Tensors> kept = gradients_of_all(1);
    kept[1][0][4711] = 0;
    model.fold(kept);
    // Rank 1 never begins the second bucket: what of it the others have kept is not looked at.
    for (int rank = 0; rank < kWorld; ++rank) {
      const auto residuals = testing::saved_residuals(job.states()[static_cast<std::size_t>(rank)]);
      for (const std::size_t t : {std::size_t{0}, std::size_t{2}}) {
        EXPECT_TRUE(residuals.at(shaped_tensors()[t].name) == model.residual(rank, t)) << rank;
      }
    }
    const auto next = job.step(2);
    const Tensors wanted = model.mean(gradients_of_all(2), 2);
    for (std::size_t t = 0; t < 5; ++t) {
      if (shaped_tensors()[t].is_compressed) continue;
      for (const Outcome& outcome : next) EXPECT_TRUE(outcome.tensors[t] == wanted[t]) << t;
    }
  }
}

// Finite input whose products are not, of all ranks; and a value that would be too large, of one rank.
TEST(PowerSgdFaults, SumsThatAreTooLargeFailAllOrPass) {
  const auto all = [](int, Tensors& tensors) { tensors[2].assign(tensors[2].size(), 0x1p120F); };
  const auto one = [](int rank, Tensors& tensors) {
    if (rank == 1) tensors[2][7] = -0x1p126F;
  };
  Job job;
  for (const Outcome& outcome : job.step(0, all)) {
    EXPECT_TRUE(outcome.failed);
    EXPECT_EQ(outcome.error.code, ErrorCode::kRange) << outcome.error.message;
  }
  for (const auto& fill :
       {std::function<void(int, Tensors&)>(all), std::function<void(int, Tensors&)>(one)}) {
    Job other(passing());
    for (const Outcome& outcome : other.step(0, fill)) {
      ASSERT_FALSE(outcome.failed) << outcome.error.message;
      EXPECT_FALSE(outcome.finite);
      for (const float value : outcome.tensors[2]) ASSERT_TRUE(std::isnan(value));
    }
  }
}

TEST(PowerSgdUnused, OfOneRankGoesOnWaitingThere) {
  Job job;
  PowerSgdModel model("fp32", kWorld);
  for (std::uint64_t step = 0; step < 4; ++step) {
    const auto fill = [step](int rank, Tensors& tensors) {
      if (step == 1 && rank == 1) tensors[2].assign(tensors[2].size(), -0.0F);
    };
    std::vector<Tensors> inputs = gradients_of_all(step);
    fill(1, inputs[1]);
    expect_means(job.step(step, fill), model.mean(inputs, step));
  }
}

TEST(PowerSgdScales, MustBeLegal) {
  for (const float scale : {0.0F, -1.0F, kNaN, kInfinity}) {
    Job job;
    job.step(0);
    const auto before = job.states();
    for (const Outcome& outcome : job.step(1, {}, {}, 5, scale)) {
      EXPECT_TRUE(outcome.failed);
      EXPECT_EQ(outcome.error.code, ErrorCode::kInvalidArgument) << outcome.error.message;
    }
    EXPECT_TRUE(job.states() == before);
  }
}

// Ranks with different ranks of factors send parts of different shapes.
TEST(PowerSgdFaults, OtherSettingsAreFound) {
  std::vector<Error> errors(2);
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    Tensors tensors = shaped_gradients(rank, 0);
    const auto reducer = reducer_of(rank == 0 ? "powersgd:rank=4" : "powersgd:rank=3");
    const auto report = reducer->all_reduce(named_shaped(tensors), {0, 0, true}, transport, in_seconds(10));
    ASSERT_FALSE(report);
    errors[static_cast<std::size_t>(rank)] = report.error();
  });
  // A message that is too long for its receive, or parts of another layout.
  bool is_named = false;
  for (const Error& error : errors) {
    is_named = is_named || error.code == ErrorCode::kMismatch ||
               error.message.find("do all ranks have the same settings") != std::string::npos;
  }
  EXPECT_TRUE(is_named) << errors[0].message;
}

TEST(PowerSgdFaults, ATensorStandsInOneBucketOfAStep) {
  run_ranks(1, {}, [&](int, Transport& transport) {
    Tensors tensors = shaped_gradients(0, 0);
    const std::vector<Named> all = named_shaped(tensors);
    const auto reducer = reducer_of(kSpec);
    ASSERT_TRUE(reducer->begin(std::span(all).first(1), {0, 0, false}, transport, in_seconds(5)));
    testing::expect_refused(reducer->begin(std::span(all).first(1), {0, 1, true}, transport, in_seconds(5)),
                            ErrorCode::kInvalidArgument, "two buckets");
  });
}

TEST(PowerSgdFaults, AMatrixKeepsItsShape) {
  run_ranks(1, {}, [&](int, Transport& transport) {
    Values values(6000, 1.0F);
    const auto reducer = reducer_of(kSpec);
    const auto step = [&](std::vector<std::uint64_t> dims, std::uint64_t number) {
      Named tensor{"w", {values.data(), values.size(), DType::kF32}, 0};
      tensor.tensor.dims = dims;
      return reducer->all_reduce(std::span(&tensor, 1), {number, 0, true}, transport, in_seconds(5));
    };
    ASSERT_TRUE(step({60, 100}, 0));
    testing::expect_refused(step({100, 60}, 1), ErrorCode::kMismatch, "100 x 60");
  });
}

}  // namespace
}  // namespace deltawire::powersgd_faults_test
