#include "linear/key_requests.h"

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "deltawire/connect.h"

namespace deltawire::linear::key_requests_test {
namespace {

constexpr std::uint64_t kDimension = 5000;

void on_ranks(int world, const std::function<void(Exchange&)>& work) {
  auto transports = connect_inproc(world);
  ASSERT_TRUE(transports);
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < world; ++rank) {
    ranks.emplace_back([&, rank] {
      auto exchange = Exchange::open("owners(fp32)", std::move((*transports)[static_cast<std::size_t>(rank)]),
                                     1, std::chrono::seconds(30));
      ASSERT_TRUE(exchange) << exchange.error().message;
      work(**exchange);
    });
  }
}

KeyPartition partition_for(const Exchange& exchange) {
  return {kDimension, static_cast<std::uint32_t>(exchange.world())};
}

// Every so many keys, another number for each rank.
std::vector<std::uint32_t> keys_of(std::size_t rank, std::uint32_t first) {
  std::vector<std::uint32_t> keys;
  for (std::uint32_t key = first; key < kDimension; key += 2 + static_cast<std::uint32_t>(rank)) {
    keys.push_back(key);
  }
  return keys;
}

// The bytes of a rank's requests, without the sizes that all ranks send each other.
std::uint64_t told_bytes(const Exchange& exchange, const StepCost& cost) {
  const auto world = static_cast<std::uint64_t>(exchange.world());
  return cost.bytes_sent - 16 * world * (world - 1);
}

// Asks, and looks at what this rank is asked for as an owner; the bytes of the request.
std::uint64_t ask(KeyRequests& requests, Exchange& exchange, std::uint32_t first,
                  std::optional<std::uint32_t> list) {
  const KeyPartition partition = partition_for(exchange);
  StepCost cost;
  const auto own = static_cast<std::size_t>(exchange.rank());
  const Status asked = requests.ask(keys_of(own, first), list, cost);
  EXPECT_TRUE(asked) << asked.error().message;
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(exchange.world()); ++rank) {
    KeyRequests::Places expected;
    for (const std::uint32_t key : keys_of(rank, first)) {
      const KeyPartition::Place place = partition.place_of(key);
      if (place.shard == own) expected.push_back(place.at);
    }
    EXPECT_EQ(requests.asked_by(rank), expected) << "rank " << rank;
  }
  return told_bytes(exchange, cost);
}

TEST(KeyRequests, AListThatHasNotChangedIsNotSentAgain) {
  on_ranks(3, [](Exchange& exchange) {
    KeyRequests requests(partition_for(exchange), exchange);
    const std::uint64_t once = ask(requests, exchange, 0, 0);
    EXPECT_GT(once, 500U);
    EXPECT_EQ(ask(requests, exchange, 0, 0), 0U);
    // Another list, and one that is not kept, leave it as it is.
    EXPECT_GT(ask(requests, exchange, 1, 1), 500U);
    EXPECT_GT(ask(requests, exchange, 1, std::nullopt), 500U);
    EXPECT_EQ(ask(requests, exchange, 0, 0), 0U);
    EXPECT_EQ(ask(requests, exchange, 1, 1), 0U);
    EXPECT_EQ(ask(requests, exchange, 0, std::nullopt), once);
  });
}

TEST(KeyRequests, AChangedListIsSentAgain) {
  on_ranks(2, [](Exchange& exchange) {
    KeyRequests requests(partition_for(exchange), exchange);
    const std::uint64_t once = ask(requests, exchange, 0, 0);
    EXPECT_GT(ask(requests, exchange, 1, 0), 500U);
    EXPECT_EQ(ask(requests, exchange, 0, 0), once);
    // A request of no keys sends nothing and is not kept.
    EXPECT_EQ(ask(requests, exchange, kDimension, 0), 0U);
    EXPECT_EQ(ask(requests, exchange, 0, 0), once);
    EXPECT_EQ(ask(requests, exchange, 0, 0), 0U);
  });
}

TEST(KeyRequests, WhatWasNeverSentCannotBeAsBefore) {
  // Rank 1 writes its own messages: 3 keys as before, of a list of which there was none, or of no list at
  // all.
  for (const std::optional<std::uint32_t> list :
       {std::optional<std::uint32_t>(0), std::optional<std::uint32_t>()}) {
    on_ranks(2, [&](Exchange& exchange) {
      if (exchange.rank() == 1) {
        ASSERT_TRUE(exchange.gather(std::vector<double>{3, -1, 0, 0}));
        (void)exchange.all_to_all(PeerMessages(2));
        return;
      }
      KeyRequests requests(partition_for(exchange), exchange);
      StepCost cost;
      const Status asked = requests.ask({}, list, cost);
      ASSERT_FALSE(asked);
      EXPECT_EQ(asked.error().code, ErrorCode::kCorrupt);
      EXPECT_EQ(asked.error().message.substr(0, 12), "rank 1 asked");
    });
  }
}

TEST(KeyRequests, AListThatIsKeptHasAsManyKeysAsBefore) {
  // Rank 1 writes its own messages: a list of its owner's places 0 and 1, then another number of keys.
  for (const double count : {-1.0, 1.0, 3.0, 1e9}) {
    on_ranks(2, [&](Exchange& exchange) {
      std::vector<std::byte> request{std::byte{0}, std::byte{0}};
      const std::uint32_t checksum = crc32c(request);
      request.resize(6);
      store_le(request.data() + 2, checksum);
      if (exchange.rank() == 1) {
        ASSERT_TRUE(exchange.gather(std::vector<double>{2, 6, 0, 0}));
        PeerMessages messages(2);
        messages.send[0] = {Bytes(request)};
        ASSERT_TRUE(exchange.all_to_all(messages));
        ASSERT_TRUE(exchange.gather(std::vector<double>{count, -1, 0, 0}));
        (void)exchange.all_to_all(PeerMessages(2));
        return;
      }
      KeyRequests requests(partition_for(exchange), exchange);
      StepCost cost;
      ASSERT_TRUE(requests.ask({}, 0, cost));
      EXPECT_EQ(requests.asked_by(1), (KeyRequests::Places{0, 1}));
      const Status asked = requests.ask({}, 0, cost);
      ASSERT_FALSE(asked);
      EXPECT_EQ(asked.error().code, ErrorCode::kCorrupt);
    });
  }
}

}  // namespace
}  // namespace deltawire::linear::key_requests_test
