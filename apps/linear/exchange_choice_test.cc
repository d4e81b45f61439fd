#include "linear/exchange_choice.h"

#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "deltawire/connect.h"

namespace deltawire::linear::exchange_choice_test {
namespace {

using namespace std::chrono_literals;

// What every rank makes of it; each has an exchange that waits for its pattern.
template <class Body>
void run_ranks(int world, const Body& body) {
  auto mesh = connect_inproc(world);
  ASSERT_TRUE(mesh) << mesh.error().message;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world; ++rank) {
    threads.emplace_back([&, rank] {
      auto exchange = Exchange::open("", std::move((*mesh)[static_cast<std::size_t>(rank)]), 1, 20s);
      ASSERT_TRUE(exchange) << exchange.error().message;
      body(rank, **exchange);
      (*exchange)->close();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Keys that all have, and keys of each rank alone.
std::vector<std::uint32_t> keys_of(int rank, std::uint32_t shared, std::uint32_t alone) {
  std::vector<std::uint32_t> keys;
  for (std::uint32_t i = 0; i < shared; ++i) keys.push_back(3 * i);
  const std::uint32_t first = 3 * shared + static_cast<std::uint32_t>(rank) * alone;
  for (std::uint32_t i = 0; i < alone; ++i) keys.push_back(first + i);
  return keys;
}

TEST(MeasureOverlap, CountsWhatIsDistinct) {
  struct Case {
    std::uint32_t shared;
    std::uint32_t alone;
  };
  // The last ones are sampled.
  for (const Case& each :
       {Case{0, 0}, Case{900, 0}, Case{0, 900}, Case{2000, 3000}, Case{100000, 1000}, Case{5000, 80000}}) {
    run_ranks(4, [&](int rank, Exchange& exchange) {
      const auto overlap = measure_overlap(keys_of(rank, each.shared, each.alone), exchange);
      ASSERT_TRUE(overlap) << overlap.error().message;
      EXPECT_EQ(overlap->own, each.shared + each.alone);
      const double distinct = each.shared + 4.0 * each.alone;
      EXPECT_NEAR(overlap->distinct, distinct, 0.03 * distinct);
    });
  }
}

TEST(DirectToGather, IsTheBytesOfAModelOfBoth) {
  // All ranks alike: own pairs to owners and a share of as many back, for N - 1 copies.
  EXPECT_DOUBLE_EQ(direct_to_gather({.own = 10, .distinct = 10}, 4), 0.5);
  // No key twice: owners only cost.
  EXPECT_DOUBLE_EQ(direct_to_gather({.own = 10, .distinct = 40}, 4), 1.25);
  EXPECT_DOUBLE_EQ(direct_to_gather({}, 4), 1);
}

// Rows of one feature each, all ranks the same features or each its own; features enough for owners.
BlockStore rows_of(int rank, bool alike, std::uint32_t features) {
  BlockStore store(1 << 20);
  RowBlock block;
  for (std::uint32_t i = 0; i < 1000; ++i) {
    block.labels.push_back(i % 2 == 0 ? 1.0F : -1.0F);
    const std::uint32_t from = alike ? 0 : static_cast<std::uint32_t>(rank) * 1000;
    block.keys.push_back((from + i) % features);
    block.values.push_back(1.0F);
    block.ends.push_back(i + 1);
  }
  block.keys.back() = features - 1;
  EXPECT_TRUE(store.add(block, false));
  return store;
}

std::string chosen(int world, bool alike, std::uint32_t features, const char* codec) {
  std::vector<std::string> specs(static_cast<std::size_t>(world));
  run_ranks(world, [&](int rank, Exchange& exchange) {
    BlockStore store = rows_of(rank, alike, features);
    TrainSettings settings;
    settings.batch = 1;
    const auto choice = choose_exchange(codec, settings, store, exchange);
    ASSERT_TRUE(choice) << choice.error().message;
    EXPECT_EQ(choice->spec, exchange.spec());
    EXPECT_FALSE(choice->reason.empty());
    specs[static_cast<std::size_t>(rank)] = choice->spec.substr(0, choice->spec.find('('));
  });
  for (const std::string& spec : specs) EXPECT_EQ(spec, specs[0]);
  return specs[0];
}

TEST(ChooseExchange, TakesOwnersWhereTheySaveBytes) {
  EXPECT_EQ(chosen(4, true, 20000, "fastsgd"), "direct");
  EXPECT_EQ(chosen(4, false, 20000, "fastsgd"), "gather");
  EXPECT_EQ(chosen(2, true, 20000, "fastsgd"), "gather");
  EXPECT_EQ(chosen(4, true, 16000, "fastsgd"), "gather");  // one owner
  EXPECT_EQ(chosen(3, true, 20000, "3lc"), "direct");      // its own: no pairs
  EXPECT_EQ(chosen(3, true, 20000, "sbc"), "gather");
}

TEST(Exchange, ThatWaitsForItsPatternAbortsOnAllRanks) {
  run_ranks(2, [](int rank, Exchange& exchange) {
    if (rank == 0) return exchange.abort("a row is bad");
    const auto numbers = exchange.gather(std::vector<double>{1});
    ASSERT_FALSE(numbers);
    EXPECT_NE(numbers.error().message.find("a row is bad"), std::string::npos) << numbers.error().message;
  });
}

}  // namespace
}  // namespace deltawire::linear::exchange_choice_test
