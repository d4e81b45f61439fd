#include "linear/owned_weights.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/random.h"
#include "base/varint.h"
#include "deltawire/connect.h"

namespace deltawire::linear::owned_weights_test {
namespace {

constexpr std::uint64_t kDimension = 9000;
constexpr std::uint64_t kSeed = 7;

using Rank = std::function<void(Exchange&)>;

void on_ranks(int world, const std::string& spec, const Rank& work) {
  auto transports = connect_inproc(world);
  ASSERT_TRUE(transports);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] {
      auto exchange = Exchange::open(spec, std::move((*transports)[static_cast<std::size_t>(rank)]), kSeed,
                                     std::chrono::seconds(30));
      ASSERT_TRUE(exchange) << exchange.error().message;
      work(**exchange);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

// A rank's batch in a step: keys, and a gradient at most of them.
Pairs batch_of(int rank, std::uint64_t step) {
  CounterRng random(100 * step + static_cast<std::uint64_t>(rank), kSeed);
  Pairs batch{.keys = {}, .values = {}, .dimension = kDimension};
  for (std::uint64_t key = random.next() % 3; key < kDimension; key += 1 + random.next() % 11) {
    batch.keys.push_back(static_cast<std::uint32_t>(key));
    batch.values.push_back(static_cast<float>(random.next_uniform() - 0.5));
  }
  return batch;
}

Pairs without_third(const Pairs& batch) {
  Pairs some{.keys = {}, .values = {}, .dimension = batch.dimension};
  for (std::size_t i = 0; i < batch.keys.size(); ++i) {
    if (i % 3 == 0) continue;
    some.keys.push_back(batch.keys[i]);
    some.values.push_back(batch.values[i]);
  }
  return some;
}

struct Training {
  const char* optimizer = "adam";
  std::optional<double> average_power = {};
};

OptimizerSettings settings_of(const Training& training) {
  OptimizerSettings settings = *parse_optimizer(training.optimizer);
  settings.learning_rate = 0.05;
  settings.weight_decay = 0.01;
  return settings;
}

std::vector<std::uint32_t> all_keys() {
  std::vector<std::uint32_t> keys(kDimension);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<std::uint32_t>(i);
  return keys;
}

constexpr std::uint64_t kSteps = 12;

// Results after kSteps, of every rank; views in between are compared with the replicas'.
std::vector<std::vector<float>> replicas(int world, const Training& training,
                                         std::vector<std::vector<float>>* views = nullptr) {
  std::vector<std::vector<float>> weights(static_cast<std::size_t>(world),
                                          std::vector<float>(kDimension, 0.0F));
  on_ranks(world, "gather(fp32)", [&](Exchange& exchange) {
    auto optimizer = LazyOptimizer::make(settings_of(training), kDimension);
    ASSERT_TRUE(optimizer);
    if (training.average_power) optimizer->keep_average(*training.average_power);
    std::vector<float>& own = weights[static_cast<std::size_t>(exchange.rank())];
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const Pairs batch = batch_of(exchange.rank(), step);
      optimizer->bring_up(batch.keys, own);
      if (views != nullptr && exchange.rank() == 1) {
        for (const std::uint32_t key : batch.keys) (*views)[step].push_back(own[key]);
      }
      Pairs gradient = without_third(batch);
      ASSERT_TRUE(exchange.average(gradient));
      optimizer->step(gradient, own);
    }
    optimizer->bring_up_all(own);
    for (std::uint32_t key = 0; key < kDimension; ++key) own[key] = optimizer->result(key, own);
  });
  return weights;
}

struct Owned {
  std::vector<float> weights;
  std::vector<std::vector<float>> views = std::vector<std::vector<float>>(kSteps);  // rank 1's
};

void train_owned(Exchange& exchange, const Training& training, Owned& result) {
  auto owned = OwnedWeights::make(settings_of(training), kDimension, exchange);
  ASSERT_TRUE(owned) << owned.error().message;
  if (training.average_power) (*owned)->keep_average(*training.average_power);
  std::vector<float> view(kDimension, -1.0F);
  for (std::uint64_t step = 0; step < kSteps; ++step) {
    const Pairs batch = batch_of(exchange.rank(), step);
    const auto pulled = (*owned)->pull(batch.keys, view);
    ASSERT_TRUE(pulled) << pulled.error().message;
    EXPECT_GT(pulled->weights_bytes, 0U);
    EXPECT_GT(pulled->bytes_sent, pulled->weights_bytes);
    if (exchange.rank() == 1) {
      for (const std::uint32_t key : batch.keys) result.views[step].push_back(view[key]);
    }
    const auto pushed = (*owned)->push(without_third(batch));
    ASSERT_TRUE(pushed) << pushed.error().message;
    EXPECT_EQ(exchange.steps(), step + 1);
  }
  const auto keys = exchange.rank() == 0 ? all_keys() : std::vector<std::uint32_t>();
  ASSERT_TRUE((*owned)->pull_results(keys, view, std::nullopt));
  const auto squares = exchange.sums(std::vector<double>{(*owned)->squares_of_results()});
  ASSERT_TRUE(squares);
  if (exchange.rank() != 0) return;
  result.weights = view;
  double expected = 0;
  for (const float weight : view) expected += static_cast<double>(weight) * static_cast<double>(weight);
  EXPECT_NEAR(squares->front(), expected, 1e-9 * expected);
}

Owned train_with_owners(int world, const Training& training, const std::string& spec) {
  Owned result;
  on_ranks(world, spec, [&](Exchange& exchange) { train_owned(exchange, training, result); });
  return result;
}

TEST(OwnedWeights, AreBitForBitThoseThatEveryRankWouldStep) {
  for (const char* name : {"adam", "adagrad"}) {
    std::vector<std::vector<float>> views(kSteps);
    const auto expected = replicas(3, {name}, &views);
    const Owned owned = train_with_owners(3, {name}, "owners(fp32)");
    EXPECT_EQ(owned.weights, expected[0]);
    EXPECT_EQ(owned.views, views);
    EXPECT_GT(std::ranges::count_if(owned.weights, [](float weight) { return weight != 0; }), 2000);
  }
}

TEST(OwnedWeights, OfSgdAreThoseToOneInAMillion) {
  const auto expected = replicas(4, {"sgd"});
  const Owned owned = train_with_owners(4, {"sgd"}, "owners(fp32 back zstd)");
  for (std::size_t i = 0; i < kDimension; ++i) EXPECT_NEAR(owned.weights[i], expected[0][i], 1e-6) << i;
}

TEST(OwnedWeights, HaveTheAveragesThatEveryRankWouldKeep) {
  for (const char* name : {"adam", "adagrad", "sgd"}) {
    const Training training{name, 2};
    const auto expected = replicas(3, training);
    const Owned owned = train_with_owners(3, training, "owners(fp32)");
    const Owned last = train_with_owners(3, {name}, "owners(fp32)");
    EXPECT_EQ(owned.views, last.views) << "batches are of weights";
    EXPECT_NE(owned.weights, last.weights);
    if (std::string_view(name) != "sgd") {
      EXPECT_EQ(owned.weights, expected[0]);
      continue;
    }
    for (std::size_t i = 0; i < kDimension; ++i) ASSERT_NEAR(owned.weights[i], expected[0][i], 1e-6) << i;
  }
}

TEST(OwnedWeights, StateLivesOnceInTheCluster) {
  for (const int world : {1, 2, 5}) {
    on_ranks(world, "owners(fastsgd)", [&](Exchange& exchange) {
      auto made = OwnedWeights::make(settings_of({"adam"}), kDimension, exchange);
      ASSERT_TRUE(made);
      const auto bytes = exchange.sums(std::vector<double>{static_cast<double>((*made)->state_bytes())});
      ASSERT_TRUE(bytes);
      EXPECT_EQ(bytes->front(), 16.0 * kDimension);  // weight, two moments, steps that were taken
      EXPECT_LE((*made)->state_bytes(), 16 * (kDimension / static_cast<std::uint64_t>(world) + 1));
    });
  }
}

TEST(OwnedWeights, ALossyViewLeavesWhatIsKeptExact) {
  const auto expected = train_with_owners(3, {"adam"}, "owners(fp32)");
  const auto rounded = train_with_owners(3, {"adam"}, "owners(fp32 back bf16)");
  EXPECT_EQ(rounded.weights, expected.weights);  // these gradients don't look at weights
  EXPECT_NE(rounded.views, expected.views);
  for (std::size_t step = 0; step < kSteps; ++step) {
    for (std::size_t i = 0; i < rounded.views[step].size(); ++i) {
      EXPECT_NEAR(rounded.views[step][i], expected.views[step][i], std::fabs(expected.views[step][i]) / 256);
    }
  }
}

TEST(OwnedWeights, RanksWithoutKeysTakePart) {
  on_ranks(3, "owners(fastsgd)", [&](Exchange& exchange) {
    auto owned = OwnedWeights::make(settings_of({"sgd"}), kDimension, exchange);
    ASSERT_TRUE(owned);
    std::vector<float> view(kDimension, 0.0F);
    Pairs gradient{.keys = {}, .values = {}, .dimension = kDimension};
    if (exchange.rank() == 2) gradient = {.keys = {5}, .values = {3}, .dimension = kDimension};
    ASSERT_TRUE((*owned)->pull(gradient.keys, view));
    ASSERT_TRUE((*owned)->push(gradient));
    const std::vector<std::uint32_t> key{5};
    ASSERT_TRUE((*owned)->pull_results(key, view, std::nullopt));
    EXPECT_FLOAT_EQ(view[5], -0.05F);
  });
}

std::vector<std::byte> with_checksum(const std::vector<std::uint64_t>& gaps) {
  std::vector<std::byte> bytes;
  for (const std::uint64_t gap : gaps) append_varint(bytes, gap);
  const std::uint32_t checksum = crc32c(bytes);
  bytes.resize(bytes.size() + 4);
  store_le(bytes.data() + bytes.size() - 4, checksum);
  return bytes;
}

TEST(OwnedWeights, ARankThatEndsIsNamed) {
  on_ranks(2, "owners(fp32)", [&](Exchange& exchange) {
    if (exchange.rank() == 1) return exchange.abort("it has had enough");
    auto owned = OwnedWeights::make(settings_of({"sgd"}), kDimension, exchange);
    ASSERT_TRUE(owned);
    std::vector<float> view(kDimension);
    const auto pulled = (*owned)->pull({}, view);
    ASSERT_FALSE(pulled);
    EXPECT_NE(pulled.error().message.find("rank 1"), std::string::npos) << pulled.error().message;
  });
}

TEST(OwnedWeights, RequestsThatMakeNoSenseAreRefused) {
  // Rank 1 writes its own messages: the size of its request, and the request.
  struct Case {
    double count;
    std::vector<std::byte> bytes;
  };
  const std::byte zero{0};
  for (const Case& bad :
       {Case{1e9, {}}, Case{-1, {}}, Case{1, {zero, zero, zero, zero, zero}}, Case{1, {zero}},
        Case{0, {zero, zero, zero, zero}}, Case{1, with_checksum({kDimension / 2})},
        Case{1, with_checksum({0, 0})}, Case{2, with_checksum({kDimension / 2 - 1, 0})},
        Case{2, with_checksum({0})}, Case{0, with_checksum({})}}) {
    on_ranks(2, "owners(fp32)", [&](Exchange& exchange) {
      if (exchange.rank() == 1) {
        std::vector<double> numbers{bad.count, static_cast<double>(bad.bytes.size()), 0, 0};
        const auto told = exchange.gather(numbers);
        PeerMessages messages(2);
        messages.send[0] = {Bytes(bad.bytes)};
        (void)exchange.all_to_all(messages);
        return;
      }
      auto owned = OwnedWeights::make(settings_of({"sgd"}), kDimension, exchange);
      ASSERT_TRUE(owned);
      std::vector<float> view(kDimension);
      const auto pulled = (*owned)->pull({}, view);
      ASSERT_FALSE(pulled);
      EXPECT_EQ(pulled.error().code, ErrorCode::kCorrupt) << pulled.error().message;
      EXPECT_EQ(pulled.error().message.substr(0, 12), "rank 1 asked");
    });
  }
}

TEST(OwnerSpec, NamesCodecsOfBothWays) {
  ASSERT_TRUE(names_owners("owners(fp32)"));
  EXPECT_FALSE(names_owners("direct(fp32)"));
  const auto parsed = parse_owner_spec("owners(fp32 back bf16)");
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->text(), "owners(fp32 back bf16)");
  EXPECT_EQ(parse_owner_spec("owners(fp32)")->text(), "owners(fp32 back fp32)");
  for (const char* spec :
       {"owners(3lc)", "owners(topk)", "owners(fp32 back topk)", "owners()", "owners(x)"}) {
    EXPECT_FALSE(parse_owner_spec(spec)) << spec;
  }
}

}  // namespace
}  // namespace deltawire::linear::owned_weights_test
