// Every pattern against its sequential reference, on threads.
#include <algorithm>
#include <cctype>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/brief_testing.h"
#include "base/random.h"
#include "reduce/rank_threads_testing.h"
#include "reduce/sequential_testing.h"

namespace deltawire::patterns_test {
namespace {

using namespace testing;

struct Case {
  std::string spec;
  int world;
};

class Patterns : public ::testing::TestWithParam<Case> {};

TEST_P(Patterns, EqualTheSequentialReferenceBitForBit) {
  const Case& chosen = GetParam();
  const auto means =
      testing::reference_means(*testing::make_sequential(chosen.spec, chosen.world), chosen.world);
  run_ranks(chosen.world, {}, [&](int, Transport& transport) {
    testing::expect_means(*reducer_of(chosen.spec), means, transport);
  });
}

// What codecs of a kind have in common; in brief one codec of each kind.
class KindPatterns : public Patterns {};

// The bucket layout must not change a byte: one bucket, or one for each tensor with all in flight.
TEST_P(KindPatterns, BucketsChangeNothing) {
  const Case& chosen = GetParam();
  std::vector<Tensors> whole(static_cast<std::size_t>(chosen.world));
  std::vector<Tensors> split(static_cast<std::size_t>(chosen.world));
  const auto train = [&](std::vector<Tensors>& results, bool buckets) {
    run_ranks(chosen.world, {}, [&](int rank, Transport& transport) {
      const auto reducer = reducer_of(chosen.spec);
      const auto names = tensor_names();
      for (std::uint64_t step = 0; step < testing::whole_or_brief(3U, 2U); ++step) {
        Tensors tensors = gradients(rank, step);
        const auto all = named(tensors, names);
        const std::uint32_t count = buckets ? static_cast<std::uint32_t>(all.size()) : 1;
        for (std::uint32_t b = 0; b < count; ++b) {
          const auto part = buckets ? std::span(all).subspan(b, 1) : std::span(all);
          const auto begun = reducer->begin(part, {step, b, b + 1 == count}, transport, in_seconds(20));
          ASSERT_TRUE(begun) << begun.error().message;
        }
        for (std::uint32_t b = 0; b < count; ++b) {
          const auto report = reducer->finish();
          ASSERT_TRUE(report) << report.error().message;
        }
        results[static_cast<std::size_t>(rank)] = tensors;
      }
    });
  };
  train(whole, false);
  train(split, true);
  for (std::size_t rank = 0; rank < whole.size(); ++rank) EXPECT_EQ(whole[rank], split[rank]);
}

// A restored reducer sends the bytes that the original would have sent in the same step.
TEST_P(KindPatterns, SavedStateGoesOnAsIfNothingHadHappened) {
  const Case& chosen = GetParam();
  std::vector<Tensors> straight(static_cast<std::size_t>(chosen.world));
  std::vector<Tensors> restored(static_cast<std::size_t>(chosen.world));
  std::vector<std::vector<std::byte>> states(static_cast<std::size_t>(chosen.world));
  const auto run = [](Reducer& reducer, Transport& transport, std::uint64_t step, std::uint64_t data) {
    Tensors tensors = gradients(transport.rank(), data);
    const auto names = tensor_names();
    const auto report = reducer.all_reduce(named(tensors, names), {step, 0, true}, transport, in_seconds(20));
    EXPECT_TRUE(report) << report.error().message;
    return tensors;
  };
  run_ranks(chosen.world, {}, [&](int rank, Transport& transport) {
    const auto first = reducer_of(chosen.spec);
    run(*first, transport, 0, 0);
    auto state = first->save();
    ASSERT_TRUE(state);
    states[static_cast<std::size_t>(rank)] = std::move(*state);
    straight[static_cast<std::size_t>(rank)] = run(*first, transport, 1, 9);
  });
  run_ranks(chosen.world, {}, [&](int rank, Transport& transport) {
    const auto second = reducer_of(chosen.spec);
    ASSERT_TRUE(second->load(states[static_cast<std::size_t>(rank)]));
    restored[static_cast<std::size_t>(rank)] = run(*second, transport, 1, 9);
  });
  EXPECT_EQ(straight, restored);
}

// Every spec with three ranks. Other worlds are the pattern's matter, not the codec's: they have codecs of
// every kind (raw, dense and sparse ones with residuals, lossless, drawn, cut by significance) and all rules.
std::vector<Case> cases(const std::vector<std::string>& specs, bool is_brief = false) {
  constexpr std::string_view kOfEveryKind[] = {"(fp32)", "(3lc)",     "(sbc)",  "(gcomp)",
                                               "(int8)", "(randomk)", "(zstd)", ", rest "};
  std::vector<Case> all;
  for (const std::string& spec : specs) {
    const bool is_for_all = std::ranges::any_of(
        kOfEveryKind, [&](std::string_view kind) { return spec.find(kind) != std::string::npos; });
    if (is_for_all || !is_brief) all.push_back({spec, 3});
    if (!is_for_all) continue;
    for (const int world : {1, 2, 5}) all.push_back({spec, world});
  }
  return all;
}

std::string case_name(const ::testing::TestParamInfo<Case>& chosen) {
  std::string name = chosen.param.spec + "_" + std::to_string(chosen.param.world);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Specs, Patterns, ::testing::ValuesIn(cases(testing::reducer_specs())), case_name);
INSTANTIATE_TEST_SUITE_P(Specs, KindPatterns,
                         ::testing::ValuesIn(cases(testing::reducer_specs(),
                                                   testing::whole_or_brief(false, true))),
                         case_name);

// The first value of the mean, of gradients that are 1 there: what is sent is m = s * max|x|.
float mean_of_ones(const std::string& spec) {
  float mean = 0;
  run_ranks(2, {}, [&](int rank, Transport& transport) {
    std::vector<float> values(300, 0.0F);
    values[0] = 1;
    const Named tensor{"w", {values.data(), values.size(), DType::kF32}};
    const auto report =
        reducer_of(spec)->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(20));
    ASSERT_TRUE(report) << report.error().message;
    if (rank == 0) mean = values[0];
  });
  return mean;
}

TEST(Means, AreCodedAsPullSays) {
  EXPECT_EQ(mean_of_ones("direct(3lc)"), 1);
  EXPECT_EQ(mean_of_ones("direct(3lc:pull=0.5)"), 0.5F);
  EXPECT_EQ(mean_of_ones("direct(3lc:s=0.5,pull=1)"), 0.5F);
  EXPECT_EQ(mean_of_ones("direct(3lc:s=0.5)"), 0.25F);
  EXPECT_EQ(mean_of_ones("hierarchical:group=1(3lc:pull=0.5)"), 0.5F);
  EXPECT_EQ(mean_of_ones("ring(3lc:s=0.5)"), 0.375F) << "1/2 comes as 1/4, and 1/4 + 1/2 as half of that";
  EXPECT_EQ(mean_of_ones("ring(3lc:s=0.5,pull=1)"), 0.75F);
  EXPECT_EQ(mean_of_ones("gather(3lc:pull=0.5)"), 1) << "nothing is sent back";
}

// Bytes that rank 0 sends of a noisy tensor.
std::uint64_t bytes_sent_of(const std::string& spec, int world) {
  std::uint64_t sent = 0;
  run_ranks(world, {}, [&](int rank, Transport& transport) {
    const CounterRng random(static_cast<std::uint64_t>(rank));
    std::vector<float> values;
    for (std::uint64_t i = 0; i < 1 << 17; ++i) values.push_back(static_cast<float>(random.uniform_at(i)));
    const Named tensor{"w", {values.data(), values.size(), DType::kF32}};
    const auto report =
        reducer_of(spec)->all_reduce(std::span(&tensor, 1), {0, 0, true}, transport, in_seconds(20));
    ASSERT_TRUE(report) << report.error().message;
    if (rank == 0) sent = report->bytes_sent;
  });
  return sent;
}

// Sparse means that are denser than what is pushed: 4 times the push in all, with however many ranks.
TEST(Means, OfSparseCodecsDoNotGrowWithTheRanks) {
  const std::uint64_t push = bytes_sent_of("gather(topk:k=1%)", 2);
  for (const int world : {2, 4, 16}) {
    EXPECT_LT(bytes_sent_of("direct(topk:k=1%,pull=3%)", world), 4 * push) << world;
  }
  EXPECT_GT(bytes_sent_of("direct(topk:k=1%,pull=3%)", 4), 2 * bytes_sent_of("direct(topk:k=1%)", 4) * 3 / 4);
  EXPECT_GT(bytes_sent_of("gather(topk:k=1%)", 16), 14 * push);
}

class PatternsFp32 : public ::testing::TestWithParam<std::string> {};

// Raw bytes are what the messages' values are as they are: what `fp32` sends, less the headers.
TEST_P(PatternsFp32, RawBytesAreFourAnElementSent) {
  const std::uint64_t elements = std::accumulate(tensor_counts().begin(), tensor_counts().end(), 0ULL);
  for (const int world : {1, 2, 3, 5}) {
    std::vector<Report> reports(static_cast<std::size_t>(world));
    run_ranks(world, {}, [&](int rank, Transport& transport) {
      const auto names = tensor_names();
      Tensors tensors = gradients(rank, 0);
      const auto report = reducer_of(GetParam() + "(fp32)")
                              ->all_reduce(named(tensors, names), {0, 0, true}, transport, in_seconds(20));
      ASSERT_TRUE(report) << report.error().message;
      reports[static_cast<std::size_t>(rank)] = *report;
    });
    std::uint64_t all = 0;
    for (const Report& report : reports) {
      all += report.raw_bytes;
      EXPECT_GE(report.bytes_sent, report.raw_bytes) << world;
      EXPECT_LE(report.bytes_sent, report.raw_bytes + report.raw_bytes / 50 + 4096) << world;
    }
    const auto ranks = static_cast<std::uint64_t>(world);
    const std::uint64_t copies = GetParam() == "gather" ? ranks * (ranks - 1) : 2 * (ranks - 1);
    EXPECT_EQ(all, 4 * elements * copies) << world;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PatternsFp32,
                         ::testing::Values("direct", "ring", "gather", "hierarchical:group=2"));

}  // namespace
}  // namespace deltawire::patterns_test
