// The state of a process that joins: chunks, from several members.
#include "elastic/state_transfer.h"

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "transport/mesh_testing.h"

namespace deltawire::elastic::state_transfer_test {
namespace {

using namespace std::chrono_literals;
using test::token_of;

constexpr std::uint64_t kChunk = 1U << 14U;

std::vector<std::byte> pattern(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 251 + i / 65'521);
  return bytes;
}

StateArray array_of(std::string name, Bytes bytes) {
  return {std::move(name), "|u1", 1, {bytes.size()}, bytes};
}

// A member's door, at which it gives a state; or is silent, if it has none.
class Giver {
 public:
  explicit Giver(std::shared_ptr<const StateSender> state) : state_(std::move(state)) {
    door_ = *open_door(*listen_tcp("127.0.0.1"), options());
    thread_ = std::thread([this] { run(); });
  }
  ~Giver() {
    ending_.set();
    thread_.join();
  }
  Giver(const Giver&) = delete;
  Giver& operator=(const Giver&) = delete;

  static DoorOptions options() { return {.token = token_of(7)}; }
  Endpoint endpoint() const { return door_->endpoint(); }
  std::size_t given() const { return given_; }
  // From now on it gives nothing, and hangs up.
  void dies_after(std::size_t chunks) { dies_after_ = chunks; }

 private:
  void run() {
    std::vector<std::unique_ptr<PeerLine>> lines;
    while (!ending_.is_set() && given_ < dies_after_) {
      auto line = door_->answer(Clock::now() + 50ms);
      if (!line) continue;
      lines.push_back(std::make_unique<PeerLine>(*std::move(line)));
      if (state_ == nullptr) continue;
      const auto first = lines.back()->hear_within(5s, ending_);
      if (!first) continue;
      const auto offer = [this]() -> std::shared_ptr<const StateSender> {
        if (given_ >= dies_after_) return nullptr;
        ++given_;
        return state_;
      };
      give_chunks(*lines.back(), std::get<Take>(*first), offer, 5s, ending_);
    }
  }

  std::shared_ptr<const StateSender> state_;
  Ending ending_;
  std::atomic<std::size_t> given_ = 0;
  std::atomic<std::size_t> dies_after_ = SIZE_MAX;
  std::unique_ptr<Door> door_;
  std::thread thread_;
};

TEST(State, IsWhatItWas) {
  for (const std::size_t count :
       {std::size_t{0}, std::size_t{1}, std::size_t{kChunk}, std::size_t{3 * kChunk + 5}}) {
    const auto bytes = pattern(count);
    const std::vector<float> weights{-0.0F, 1e-42F, 3.5F};
    const auto sender = *StateSender::make({array_of("bytes", bytes),
                                            {"weights", "<f4", 4, {3}, std::as_bytes(std::span(weights))},
                                            {"empty", "<f2", 2, {0, 4}, {}}},
                                           kChunk);
    const Giver giver(sender);
    const Ending never;
    const Caller caller(Giver::options(), never);
    StateReceiver receiver(caller, 5s);
    const std::vector<Endpoint> doors{giver.endpoint()};
    const auto layout = state_layout_in(sender->layout());
    ASSERT_TRUE(layout) << layout.error().message;
    EXPECT_EQ(layout->digests.size(), (count + 12 + kChunk - 1) / kChunk);
    const Status taken = receiver.take(*layout, doors, [](std::uint64_t) { return Status{}; });
    ASSERT_TRUE(taken) << taken.error().message;
    const auto arrays = receiver.arrays();
    ASSERT_EQ(arrays.list.size(), 3U);
    EXPECT_TRUE(std::ranges::equal(arrays.list[0].bytes, bytes));
    EXPECT_EQ(std::memcmp(arrays.list[1].bytes.data(), weights.data(), 12), 0);
    EXPECT_EQ(arrays.list[2].dims, (std::vector<std::uint64_t>{0, 4}));
    EXPECT_EQ(arrays.list[2].kind, "<f2");
  }
}

TEST(State, EqualWeightsTakeLessThanTheirBytes) {
  std::vector<float> weights(1U << 18U);
  std::mt19937 random(0);
  std::normal_distribution<float> normal;
  for (float& each : weights) each = normal(random);
  const Bytes bytes = std::as_bytes(std::span(weights));
  const auto sender = *StateSender::make({{"weights", "<f4", 4, {weights.size()}, bytes}});
  const auto layout = *state_layout_in(sender->layout());
  ASSERT_EQ(layout.digests.size(), 1U);
  const auto chunk = sender->chunk(layout.digests[0]);
  ASSERT_TRUE(chunk && *chunk);
  EXPECT_LT((*chunk)->size(), bytes.size() * 9 / 10);
  EXPECT_FALSE(sender->chunk(Digest{})->has_value());
}

TEST(State, BytesThatAreNotThoseOfTheDimsAreRefused) {
  const auto bytes = pattern(12);
  EXPECT_FALSE(StateSender::make({{"a", "<f4", 4, {4}, bytes}}));
  EXPECT_FALSE(StateSender::make({{"a", "|V0", 0, {4}, bytes}}));
}

TEST(State, ALayoutThatCanNotBeIsRefused) {
  const auto bytes = pattern(1U << 12U);
  const auto told = *decode_layout((*StateSender::make({array_of("a", bytes)}))->layout());
  const auto refused = [&](auto change) {
    StateLayout layout = told;
    change(layout);
    return !state_layout_in(encode(layout));
  };
  EXPECT_FALSE(refused([](StateLayout&) {}));
  EXPECT_TRUE(refused([](StateLayout& layout) { layout.rows[0].dims = {std::uint64_t{1} << 50U}; }));
  EXPECT_TRUE(refused([](StateLayout& layout) { layout.rows[0].dims.assign(8, UINT64_MAX); }));
  EXPECT_TRUE(refused([](StateLayout& layout) { layout.rows[0].element_bytes = 0; }));
  EXPECT_TRUE(refused([](StateLayout& layout) { layout.chunk_bytes = 0; }));
  EXPECT_TRUE(refused([](StateLayout& layout) { layout.chunk_bytes = 1U << 10U; }));
  EXPECT_TRUE(refused([](StateLayout& layout) { layout.chunk_bytes = std::uint64_t{1} << 60U; }));
  EXPECT_TRUE(refused([](StateLayout& layout) { layout.digests.clear(); }));
  EXPECT_TRUE(refused([](StateLayout& layout) { layout.rows[0].dims.resize(65, 1); }));
}

// Each chunk is given once, by several members; one that dies or is silent is done without.
TEST(State, ComesFromAllAndGoesOnWhenAGiverDies) {
  constexpr std::size_t kChunks = 40;
  const auto bytes = pattern(kChunks * kChunk);
  const auto sender = *StateSender::make({array_of("weights", bytes)}, kChunk);
  Giver dies(sender);
  dies.dies_after(2);
  const Giver silent(nullptr);
  const Giver lives(sender);
  const Ending never;
  const Caller caller(Giver::options(), never);
  StateReceiver receiver(caller, 10s);
  const std::vector<Endpoint> doors{dies.endpoint(), silent.endpoint(), lives.endpoint()};
  const auto layout = *state_layout_in(sender->layout());
  std::uint64_t most = 0;
  const Status taken = receiver.take(layout, doors, [&](std::uint64_t chunks) {
    most = std::max(most, chunks);
    return Status{};
  });
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_LE(dies.given(), 2U);
  EXPECT_EQ(dies.given() + lives.given(), kChunks + 0);
  // What has been taken counts when it begins again.
  EXPECT_TRUE(receiver.take(layout, {}, [](std::uint64_t) { return Status{}; }));
  EXPECT_TRUE(std::ranges::equal(receiver.arrays().list.at(0).bytes, bytes));
}

TEST(State, WhatNobodyGivesIsAnError) {
  const auto bytes = pattern(100);
  const auto layout = *state_layout_in((*StateSender::make({array_of("a", bytes)}))->layout());
  const Ending never;
  const Caller caller(Giver::options(), never);
  StateReceiver receiver(caller, 2s);
  const Status taken = receiver.take(layout, {}, [](std::uint64_t) { return Status{}; });
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kPeerLost);
}

}  // namespace
}  // namespace deltawire::elastic::state_transfer_test
