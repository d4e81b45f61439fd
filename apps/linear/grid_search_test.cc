#include "linear/grid_search.h"

#include <cmath>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "base/random.h"
#include "deltawire/connect.h"

namespace deltawire::linear::grid_search_test {
namespace {

constexpr std::uint32_t kFeatures = 400;

// Rows whose label is the sign of a planted model; `seed` tells one rank's from another's.
BlockStore rows_of(std::uint64_t seed, std::uint32_t count, bool held_out_too = true) {
  BlockStore store(std::uint64_t{1} << 30);
  CounterRng random(seed);
  for (const bool held_out : {false, true}) {
    if (held_out && !held_out_too) continue;
    RowBlock block;
    for (std::uint32_t row = 0; row < count; ++row) {
      double margin = 0;
      for (std::uint32_t key = row % 7; key < kFeatures; key += 41) {
        const float value = static_cast<float>(2 * random.next_uniform() - 1);
        block.keys.push_back(key);
        block.values.push_back(value);
        margin += static_cast<double>(value) * (key % 2 == 0 ? 1 : -1);
      }
      block.labels.push_back(margin > 0 ? 1.0F : -1.0F);
      block.ends.push_back(static_cast<std::uint32_t>(block.keys.size()));
    }
    EXPECT_TRUE(store.add(block, held_out).has_value());
  }
  EXPECT_TRUE(store.finish(0).has_value());
  return store;
}

struct Searched {
  Result<GridReport> report = fail(ErrorCode::kState, "");
  std::vector<float> weights;  // of training with the best, afterwards
};

TrainSettings settings_for(int epochs = 3) {
  TrainSettings train;
  train.optimizer = *parse_optimizer("adam");
  train.optimizer.weight_decay = 1e-4;
  train.epochs = epochs;
  train.batch = 0.1;
  return train;
}

// `world` ranks, as threads, each with `count` rows to train on and as many held out.
std::vector<Searched> search(int world, const std::string& codec, const TrainSettings& train,
                             const GridSettings& settings, std::uint32_t count, bool held_out = true) {
  auto transports = connect_inproc(world);
  std::vector<Searched> all(static_cast<std::size_t>(world));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      auto exchange = Exchange::open(codec, std::move((*transports)[at]), 1, std::chrono::seconds(30));
      ASSERT_TRUE(exchange.has_value()) << exchange.error().message;
      BlockStore rows = rows_of(static_cast<std::uint64_t>(rank) + 1, count, held_out);
      all[at].report = search_grid(train, settings, rows, **exchange);
      if (all[at].report) {
        TrainSettings best = train;
        best.optimizer.learning_rate = all[at].report->tried[all[at].report->best].learning_rate;
        best.rate_decay = all[at].report->tried[all[at].report->best].rate_decay;
        auto model = Trainer(best, rows, **exchange).run({});
        EXPECT_TRUE(model.has_value()) << model.error().message;
        if (model) all[at].weights = model->weights;
      }
      (*exchange)->close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return all;
}

TEST(GridSearch, AllRanksChooseTheLeastLoss) {
  const auto all = search(3, "fastsgd", settings_for(), {.grid = {{0.0001, 0.1, 1e9}, {0, 1}}}, 500);
  for (const Searched& one : all) {
    ASSERT_TRUE(one.report.has_value()) << one.report.error().message;
    ASSERT_EQ(one.report->tried.size(), 6U);
    EXPECT_TRUE(one.report->judged_by_test);
    const GridPoint& best = one.report->tried[one.report->best];
    EXPECT_EQ(best.learning_rate, 0.1);
    for (std::size_t i = 0; i < 6; ++i) {
      const GridPoint& point = one.report->tried[i];
      const double others = all[0].report->tried[i].loss;
      EXPECT_TRUE(point.loss == others || (std::isnan(point.loss) && std::isnan(others))) << "bit for bit";
      if (std::isfinite(point.loss)) {
        EXPECT_GE(point.loss, best.loss);
      }
    }
    EXPECT_EQ(one.report->best, all[0].report->best);
    EXPECT_EQ(one.weights, all[0].weights);
  }
}

TEST(GridSearch, TrainingAfterwardsIsAsIfThereHadBeenNone) {
  // 3LC keeps residuals, and QSGD draws lots by step: were anything left behind, these weights would be
  // others.
  for (const char* codec : {"3lc", "qsgd"}) {
    const GridSettings grid{.grid = {{0.3, 0.1}, {0}}};
    const auto after = search(2, codec, settings_for(), grid, 500);
    ASSERT_TRUE(after[0].report.has_value()) << after[0].report.error().message;
    GridSettings alone = grid;
    alone.grid.rates = {after[0].report->tried[after[0].report->best].learning_rate};
    const auto other = search(2, codec, settings_for(), alone, 500);
    EXPECT_EQ(after[0].weights, other[0].weights) << codec;
    EXPECT_EQ(after[1].weights, other[0].weights) << codec;
    EXPECT_EQ(other[0].report->tried[0].loss, after[0].report->tried[after[0].report->best].loss) << codec;
  }
}

TEST(GridSearch, ASampleHasItsShareAndNoFewerThanAThousandRows) {
  const GridSettings tenth{.grid = {{0.1}, {0}}, .share = 0.1, .memory_bytes = 1 << 30};
  const auto small = search(1, "direct(fp32)", settings_for(1), tenth, 900);
  EXPECT_EQ(small[0].report->share, 1);
  EXPECT_EQ(small[0].report->rows, 900U);
  const auto middle = search(2, "direct(fp32)", settings_for(1), tenth, 2000);
  EXPECT_EQ(middle[0].report->share, 0.25);
  const auto large = search(1, "direct(fp32)", settings_for(1), tenth, 20000);
  EXPECT_EQ(large[0].report->share, 0.1);
  EXPECT_NEAR(static_cast<double>(large[0].report->rows), 2000, 5 * std::sqrt(1800));
}

TEST(GridSearch, AsManyStepsAsOnAllRows) {
  const GridSettings grid{.grid = {{0.1}, {0}}};
  TrainSettings train = settings_for();
  const auto share = search(1, "direct(fp32)", train, grid, 1000);
  train.batch = 100;
  const auto count = search(1, "direct(fp32)", train, grid, 1000);
  EXPECT_EQ(count[0].report->tried[0].loss, share[0].report->tried[0].loss);
  // 100 of 10,000 rows make 100 steps a data epoch, and so they do of a sample of a tenth.
  const auto whole = search(1, "direct(fp32)", train, {.grid = {{0.001}, {0}}, .share = 1}, 10000);
  const auto tenth = search(1, "direct(fp32)", train, {.grid = {{0.001}, {0}}, .share = 0.1}, 10000);
  EXPECT_NEAR(tenth[0].report->tried[0].loss, whole[0].report->tried[0].loss, 0.09);
}

TEST(GridSearch, WithoutRowsHeldOutTheObjectiveJudges) {
  const auto all = search(1, "direct(fp32)", settings_for(), {.grid = {{0.001, 0.1}, {0}}}, 500, false);
  ASSERT_TRUE(all[0].report.has_value());
  EXPECT_FALSE(all[0].report->judged_by_test);
  EXPECT_EQ(all[0].report->best, 1U);
}

TEST(GridSearch, ARateThatTheOptimizerRefusesCostsNoOther) {
  TrainSettings train = settings_for();
  train.optimizer.kind = OptimizerKind::kSgd;
  train.optimizer.weight_decay = 0.5;
  const auto all = search(1, "direct(fp32)", train, {.grid = {{4, 0.1}, {0}}}, 500);
  ASSERT_TRUE(all[0].report.has_value()) << all[0].report.error().message;
  EXPECT_TRUE(std::isnan(all[0].report->tried[0].loss));
  EXPECT_EQ(all[0].report->best, 1U);
  const auto none = search(1, "direct(fp32)", train, {.grid = {{4}, {0}}}, 500);
  ASSERT_FALSE(none[0].report.has_value());
  EXPECT_EQ(none[0].report.error().code, ErrorCode::kRange);
}

TEST(GridSearch, ARateThatOverflowsCostsNoOther) {
  TrainSettings train = settings_for();
  train.loss = Loss::kSquared;
  train.optimizer.kind = OptimizerKind::kSgd;
  train.optimizer.weight_decay = 0;
  for (const char* codec : {"3lc", "fastsgd", "direct(fp32)", "topk:k=10%"}) {
    for (const int world : {1, 2}) {
      const auto all = search(world, codec, train, {.grid = {{1e30, 0.1}, {0}}}, 500);
      for (const Searched& one : all) {
        ASSERT_TRUE(one.report.has_value()) << codec << ": " << one.report.error().message;
        EXPECT_TRUE(std::isnan(one.report->tried[0].loss));
        EXPECT_TRUE(std::isfinite(one.report->tried[1].loss));
      }
    }
  }
}

TEST(GridSearch, AnInterruptEndsIt) {
  const GridSettings grid{.grid = {{0.1}, {0}}, .interrupted = [] { return true; }};
  const auto all = search(1, "direct(fp32)", settings_for(), grid, 500);
  ASSERT_FALSE(all[0].report.has_value());
  EXPECT_EQ(all[0].report.error().code, ErrorCode::kAborted);
}

TEST(GridSearch, TheStepsOfSgdAreLarger) {
  const Grid adam = grid_for(OptimizerKind::kAdam);
  const Grid sgd = grid_for(OptimizerKind::kSgd);
  EXPECT_EQ(adam.rates.front(), 0.001);
  EXPECT_EQ(adam.rates.back(), 1);
  EXPECT_EQ(sgd.rates.back(), 10);
  EXPECT_EQ(adam.decays, sgd.decays);
}

}  // namespace
}  // namespace deltawire::linear::grid_search_test
