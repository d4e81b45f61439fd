// Reducer::explain: what tensors took together is what the reports and the memory meter say.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "deltawire/session.h"
#include "reduce/rank_threads_testing.h"

namespace deltawire::explain_test {
namespace {

constexpr std::uint64_t kElements = 20000 + 300 + 100000 + 40;

// Tensors that owners cut, and that none does.
struct Model {
  explicit Model(int rank) : values(kElements) {
    const CounterRng random(static_cast<std::uint64_t>(rank));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(random.uniform_at(i) - 0.5);
    }
    add("conv.weight", 20000);
    tensors.back().tensor.dims = conv_dims;
    add("conv.bias", 300);
    add("fc.weight", 100000);
    tensors.back().tensor.dims = fc_dims;
    add("fc.bias", 40);
  }
  void add(const char* name, std::uint64_t count) {
    tensors.push_back({name, {values.data() + added, count, DType::kF32}});
    added += count;
  }
  std::vector<float> values;
  std::uint64_t conv_dims[4] = {20, 40, 5, 5};
  std::uint64_t fc_dims[2] = {200, 500};
  std::uint64_t added = 0;
  std::vector<Named> tensors;
};

TensorUse sum_of(const std::vector<TensorUse>& uses) {
  TensorUse sum;
  for (const TensorUse& use : uses) {
    sum.bytes_sent += use.bytes_sent;
    sum.raw_bytes += use.raw_bytes;
    sum.residual_bytes += use.residual_bytes;
    sum.momentum_bytes += use.momentum_bytes;
  }
  return sum;
}

class ExplainPatterns : public ::testing::TestWithParam<std::string> {};

// Two steps of two buckets each, on each rank.
TEST_P(ExplainPatterns, TensorsTakeTogetherWhatTheReportsSay) {
  for (const int world : {1, 2, 3}) {
    for (const std::string codec :
         {"fp32", "onebit", "sbc", "fc*: onebit, rest bf16", "3lc with momentum=0.9"}) {
      if (!sends_own(GetParam()) && codec.find("with") != std::string::npos) continue;
      if (GetParam() == "powersgd" && codec != "fp32") continue;
      const std::string spec = GetParam() + "(" + codec + ")";
      run_ranks(world, {}, [&](int rank, Transport& transport) {
        const auto reducer = reducer_of(spec);
        Report both;
        for (std::uint64_t step = 0; step < 2; ++step) {
          both = {};
          Model model(rank);
          const std::span<const Named> all(model.tensors);
          for (const bool last : {false, true}) {
            const auto report = reducer->all_reduce(last ? all.last(2) : all.first(2), {step, last, last},
                                                    transport, in_seconds(60));
            ASSERT_TRUE(report) << report.error().message;
            both.bytes_sent += report->bytes_sent;
            both.raw_bytes += report->raw_bytes;
          }
        }
        const TensorUse sum = sum_of(reducer->explain(Model(rank).tensors, 2));
        EXPECT_LE(sum.bytes_sent, both.bytes_sent) << spec;
        EXPECT_EQ(sum.residual_bytes + sum.momentum_bytes, reducer->memory().residual_bytes) << spec;
        if (GetParam() == "ring") {
          // Each rank's own mean, once; those of the others it only passes on.
          EXPECT_LE(sum.raw_bytes, both.raw_bytes) << spec;
          EXPECT_EQ(sum.raw_bytes == both.raw_bytes, world < 3) << spec;
        } else if (GetParam() == "hierarchical:group=2") {
          // One of the first two of three ranks also passes on what the third owns.
          EXPECT_LE(sum.raw_bytes, both.raw_bytes) << spec;
          if (world < 3 || rank == 2) {
            EXPECT_EQ(sum.raw_bytes, both.raw_bytes) << spec;
          }
        } else {
          EXPECT_EQ(sum.raw_bytes, both.raw_bytes) << spec;
          EXPECT_GE(sum.bytes_sent + 4000, both.bytes_sent) << spec << ": only heads are missing";
        }
        if (codec == "fp32" && GetParam() != "powersgd") {
          EXPECT_EQ(sum.bytes_sent, sum.raw_bytes);
        }
      });
    }
  }
}

TEST_P(ExplainPatterns, EveryTensorHasItsOwn) {
  if (GetParam() == "powersgd") GTEST_SKIP() << "takes no codec with error feedback";
  if (GetParam().starts_with("hierarchical")) GTEST_SKIP() << "a rank has residuals of what it adds up alone";
  run_ranks(3, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of(GetParam() + "(fc*: onebit, rest bf16)");
    Model model(rank);
    for (const TensorUse& use : reducer->explain(model.tensors, 0)) {
      EXPECT_EQ(use.bytes_sent + use.raw_bytes + use.residual_bytes, 0u) << "nothing was sent yet";
    }
    ASSERT_TRUE(reducer->all_reduce(model.tensors, {0, 0, true}, transport, in_seconds(60)));
    const std::vector<TensorUse> uses = reducer->explain(model.tensors, 1);
    ASSERT_EQ(uses.size(), 4u);
    EXPECT_EQ(uses[0].plan.codec, "bf16");
    EXPECT_EQ(uses[0].residual_bytes, 0u);
    EXPECT_EQ(uses[2].plan.codec, "onebit");
    EXPECT_GE(uses[2].residual_bytes, 400000u);
    EXPECT_TRUE(uses[3].plan.is_raw && uses[3].plan.codec == "fp32") << "too small";
    EXPECT_FALSE(uses[2].plan.is_raw);
    EXPECT_NEAR(static_cast<double>(uses[0].raw_bytes) / static_cast<double>(uses[0].bytes_sent), 2, 0.01);
    EXPECT_GT(uses[2].raw_bytes, 8 * uses[2].bytes_sent);
    const Named unknown{"x", {nullptr, 1000, DType::kF32}};
    EXPECT_EQ(reducer->explain(std::span(&unknown, 1), 1)[0].raw_bytes, 0u);
  });
}

// What one rank alone has sent is the mean, but for the ranks that share it: the rest of its energy waits.
TEST(Explain, TheNormIsOfWhatWaits) {
  for (const std::string spec : {"gather(topk:k=5%)", "powersgd:rank=2(fp32)"}) {
    run_ranks(2, {}, [&](int rank, Transport& transport) {
      const auto reducer = reducer_of(spec);
      Model model(0);
      if (rank == 1) std::fill(model.values.begin(), model.values.end(), 0.0F);
      const Model given(0);
      ASSERT_TRUE(reducer->all_reduce(model.tensors, {0, 0, true}, transport, in_seconds(60)));
      const std::vector<TensorUse> uses = reducer->explain(model.tensors, 1);
      double waits = 0;
      for (std::size_t i = 300 + 20000; i < 120300; ++i) {
        waits += std::pow(static_cast<double>(given.values[i]) - 2.0 * model.values[i], 2);
      }
      EXPECT_NEAR(uses[2].residual_norm, rank == 0 ? std::sqrt(waits) : 0.0, 1e-3) << spec;
      EXPECT_EQ(uses[3].residual_norm, 0.0) << spec << ": it travels raw";
    });
  }
}

TEST(Explain, AMatrixIsWhatItsFactorsAreTogether) {
  run_ranks(3, {}, [&](int rank, Transport& transport) {
    const auto reducer = reducer_of("powersgd:rank=2(bf16)");
    const Model model(rank);
    ASSERT_TRUE(reducer->all_reduce(model.tensors, {0, 0, true}, transport, in_seconds(60)));
    const std::vector<TensorUse> uses = reducer->explain(model.tensors, 1);
    EXPECT_EQ(uses[2].plan.codec, "factors of rank 2, bf16");
    EXPECT_EQ(uses[1].plan.codec, "bf16");
    EXPECT_EQ(uses[2].plan.payload_bytes, 2u * 2u * (200u + 500u));
    EXPECT_EQ(uses[1].residual_bytes, 0u);
    EXPECT_GE(uses[2].residual_bytes, 400000u);
    EXPECT_GT(uses[2].raw_bytes, 50 * uses[2].bytes_sent);
    EXPECT_GT(uses[2].bytes_sent, 0u);
  });
}

TEST(Explain, NamesTheCodecThatFollows) {
  const auto reducer = reducer_of("direct(fc* step<100: bf16, rest 3lc)");
  const Model model(0);
  const std::vector<TensorUse> uses = reducer->explain(model.tensors, 99);
  EXPECT_EQ(uses[2].plan.codec, "bf16");
  EXPECT_EQ(uses[2].plan.changes_at, 100u);
  EXPECT_EQ(uses[2].next_codec, "3lc:s=1,mode=auto,runs=on");
  EXPECT_EQ(uses[0].plan.changes_at, kNoStep);
  EXPECT_EQ(uses[0].next_codec, "");
}

TEST(Explain, OfASessionBetweenBuckets) {
  auto mesh = connect_inproc(1, {});
  ASSERT_TRUE(mesh);
  auto session = Session::open("3lc", {}, std::move(mesh->front()));
  ASSERT_TRUE(session);
  Model model(0);
  ASSERT_TRUE((*session)->all_reduce(model.tensors, {0, 0, true}, std::chrono::seconds(60)));
  const auto uses = (*session)->explain(model.tensors, 1);
  ASSERT_TRUE(uses);
  EXPECT_GE((*uses)[2].residual_bytes, 400000u);
  EXPECT_EQ((*uses)[2].bytes_sent, 0u) << "one rank alone sends nothing";
  (*session)->close();
  EXPECT_TRUE((*session)->explain(model.tensors, 1));
}

INSTANTIATE_TEST_SUITE_P(Explain, ExplainPatterns,
                         ::testing::Values("direct", "ring", "gather", "powersgd", "hierarchical:group=2"),
                         pattern_name);

}  // namespace
}  // namespace deltawire::explain_test
