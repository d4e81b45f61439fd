#include "linear/pair_residual.h"

#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "base/temporary_folder_testing.h"
#include "deltawire/connect.h"
#include "linear/exchange.h"
#include "linear/owned_weights.h"

namespace deltawire::linear {
namespace {

using Keys = std::vector<std::uint32_t>;
using Values = std::vector<float>;

constexpr std::uint64_t kDimension = 40000;
constexpr int kWorld = 3;
constexpr std::uint64_t kSteps = 6;

TEST(PairResidual, WaitsAtKeysUntilItIsReplaced) {
  PairResidual residual;
  residual.put(Keys{3, 5, 9}, Values{1, 0, -2});
  EXPECT_EQ(residual.waiting().keys, (Keys{3, 9}));
  residual.put(Keys{0, 9, 12}, Values{4, 0, 8});
  EXPECT_EQ(residual.waiting().keys, (Keys{0, 3, 12}));
  EXPECT_EQ(residual.waiting().values, (Values{4, 1, 8}));
  residual.put(Keys{3}, Values{2});
  EXPECT_EQ(residual.waiting().values, (Values{4, 2, 8}));
}

TEST(PairResidual, IsAddedWhereItIsAskedFor) {
  PairResidual residual;
  residual.put(Keys{1, 4, 6}, Values{0.5F, 2, 4});
  Values at{1, 1, 1};
  residual.add_at(Keys{0, 4, 5}, at);
  EXPECT_EQ(at, (Values{1, 3, 1}));
  residual.clear();
  residual.add_at(Keys{1, 4, 5}, at);
  EXPECT_EQ(at, (Values{1, 3, 1}));
}

class SavedResidual : public ::testing::Test {
 protected:
  template <class Save>
  Result<CheckpointReader> saved(const Save& save) {
    const std::string path = folder_.path(std::to_string(files_++));
    auto out = CheckpointWriter::create(path, {});
    EXPECT_TRUE(out && save(*out) && out->finish());
    return CheckpointReader::open(path);
  }

  testing::TemporaryFolder folder_;
  int files_ = 0;
};

TEST_F(SavedResidual, ComesBack) {
  PairResidual residual;
  residual.put(Keys{0, 7, kDimension - 1}, Values{1e-30F, -3, 5});
  auto in = saved([&](CheckpointWriter& out) { return residual.save(out); });
  ASSERT_TRUE(in);
  PairResidual loaded;
  loaded.put(Keys{2}, Values{2});
  ASSERT_TRUE(loaded.load(*in, kDimension));
  EXPECT_EQ(loaded.waiting().keys, residual.waiting().keys);
  EXPECT_EQ(loaded.waiting().values, residual.waiting().values);
}

TEST_F(SavedResidual, ThatMakesNoSenseIsRefusedAndChangesNothing) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<Keys, Values>> bad{{{1, 2}, {1}},       {{2, 2}, {1, 1}},  {{3, 2}, {1, 1}},
                                                 {{kDimension}, {1}}, {{1}, {infinity}}, {{1}, {0}}};
  for (const auto& [keys, values] : bad) {
    auto in = saved([&](CheckpointWriter& out) {
      const Status done = out.values(std::span<const std::uint32_t>(keys));
      return done ? out.values(std::span<const float>(values)) : done;
    });
    ASSERT_TRUE(in);
    PairResidual residual;
    residual.put(Keys{5}, Values{5});
    const Status loaded = residual.load(*in, kDimension);
    ASSERT_FALSE(loaded);
    EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(residual.waiting().keys, Keys{5});
  }
}

// A rank's gradient in a step, with values of very different sizes.
Pairs gradient_of(int rank, std::uint64_t step) {
  CounterRng random(100 * step + static_cast<std::uint64_t>(rank), 3);
  Pairs gradient{.keys = {}, .values = {}, .dimension = kDimension};
  for (std::uint64_t key = random.next() % 24; key < kDimension; key += 1 + random.next() % 24) {
    gradient.keys.push_back(static_cast<std::uint32_t>(key));
    const auto size = static_cast<int>(random.next() % 12);
    gradient.values.push_back(std::ldexp(static_cast<float>(random.next_uniform() - 0.5), -size));
  }
  return gradient;
}

void on_ranks(const std::string& spec, const std::function<void(Exchange&)>& work) {
  auto transports = connect_inproc(kWorld);
  ASSERT_TRUE(transports);
  std::vector<std::jthread> ranks;
  for (auto& transport : *transports) {
    ranks.emplace_back([&] {
      auto exchange = Exchange::open(spec, std::move(transport), 7, std::chrono::seconds(30));
      ASSERT_TRUE(exchange) << exchange.error().message;
      const Status keeps = (*exchange)->keep_losses();
      ASSERT_TRUE(keeps) << keeps.error().message;
      work(**exchange);
    });
  }
}

// By key, over all ranks and steps: what went in, what came out (means times ranks), and what waits at last.
struct Books {
  std::vector<double> in = std::vector<double>(kDimension);
  std::vector<double> out = std::vector<double>(kDimension);
  std::vector<double> waits = std::vector<double>(kDimension);
  std::size_t waiting = 0;

  static void add(std::vector<double>& to, const Pairs& pairs, double scale) {
    for (std::size_t i = 0; i < pairs.keys.size(); ++i) {
      to[pairs.keys[i]] += scale * static_cast<double>(pairs.values[i]);
    }
  }
  void expect_balance() const {
    for (std::size_t key = 0; key < kDimension; ++key) {
      ASSERT_NEAR(in[key], out[key] + waits[key], 1e-5) << "key " << key;
    }
    EXPECT_GT(waiting, 100U);  // else this shows nothing
  }
};

class FeedbackOf : public ::testing::TestWithParam<const char*> {};

TEST_P(FeedbackOf, LosesNothingWithGather) {
  Books books;
  std::mutex mutex;
  on_ranks(std::string("gather(") + GetParam() + ")", [&](Exchange& exchange) {
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      Pairs gradient = gradient_of(exchange.rank(), step);
      const Pairs own = gradient;
      const auto report = exchange.average(gradient);
      ASSERT_TRUE(report) << report.error().message;
      const std::scoped_lock lock(mutex);
      Books::add(books.in, own, 1);
      if (exchange.rank() == 0) Books::add(books.out, gradient, kWorld);
    }
    const std::scoped_lock lock(mutex);
    Books::add(books.waits, exchange.residual()->waiting(), 1);
    books.waiting += exchange.residual()->waiting().keys.size();
  });
  books.expect_balance();
}

// Plain SGD with rate 1: weights are minus the sum of all means.
TEST_P(FeedbackOf, LosesNothingWithOwners) {
  Books books;
  std::mutex mutex;
  on_ranks(std::string("owners(") + GetParam() + ")", [&](Exchange& exchange) {
    OptimizerSettings settings = *parse_optimizer("sgd");
    settings.learning_rate = 1;
    auto owned = OwnedWeights::make(settings, kDimension, exchange);
    ASSERT_TRUE(owned) << owned.error().message;
    std::vector<float> view(kDimension);
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const Pairs gradient = gradient_of(exchange.rank(), step);
      ASSERT_TRUE((*owned)->pull(gradient.keys, view));
      const auto pushed = (*owned)->push(gradient);
      ASSERT_TRUE(pushed) << pushed.error().message;
      const std::scoped_lock lock(mutex);
      Books::add(books.in, gradient, 1);
    }
    Pairs all{.keys = Keys(kDimension), .values = {}, .dimension = kDimension};
    for (std::size_t key = 0; key < kDimension; ++key) all.keys[key] = static_cast<std::uint32_t>(key);
    ASSERT_TRUE((*owned)->pull_results(all.keys, view, std::nullopt));
    all.values = view;
    const std::scoped_lock lock(mutex);
    if (exchange.rank() == 0) Books::add(books.out, all, -kWorld);
    Books::add(books.waits, exchange.residual()->waiting(), 1);
    books.waiting += exchange.residual()->waiting().keys.size();
  });
  books.expect_balance();
}

INSTANTIATE_TEST_SUITE_P(Codecs, FeedbackOf, ::testing::Values("fastsgd:tau=96", "logquant", "sketchml"));

TEST(Feedback, IsRefusedWhereNothingCanWait) {
  for (const char* spec : {"plain", "direct(fastsgd)", "gather(3lc)", "gather(fastsgd:residual=on)",
                           "gather(bf16)", "owners(3lc)", "ring(bf16)"}) {
    const Status usable = check_feedback(spec);
    ASSERT_FALSE(usable) << spec;
    EXPECT_EQ(usable.error().code, ErrorCode::kInvalidArgument) << spec;
  }
  for (const char* spec : {"gather(fastsgd:tau=96)", "fastsgd", "owners(fastsgd)", "gather(logquant)"}) {
    EXPECT_TRUE(check_feedback(spec)) << spec;
  }
}

}  // namespace
}  // namespace deltawire::linear
