// Buckets in flight, by exchanges that do as the test says.
#include "reduce/buckets_in_flight.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "reduce/scripted_transport_testing.h"

namespace deltawire::buckets_in_flight_test {
namespace {

using Kind = Progress::Kind;

// Notes what is asked of it as "a.move", and of the oldest as "a.move!".
class ScriptedExchange final : public BucketExchange {
 public:
  ScriptedExchange(char name, BufferPool& pool, std::vector<std::string>& calls)
      : BucketExchange(pool), name_(1, name), calls_(calls) {}

  std::vector<Progress> moves;  // to come; then it is done
  std::vector<Handle> more;

  Status start(bool is_oldest) override {
    note(is_oldest ? "start!" : "start");
    return {};
  }
  Result<Progress> move(bool is_oldest) override {
    note(is_oldest ? "move!" : "move");
    if (moves.empty()) return Progress::done();
    const Progress next = moves.front();
    moves.erase(moves.begin());
    return next;
  }
  void more_awaited(std::vector<Handle>& handles) const override {
    handles.insert(handles.end(), more.begin(), more.end());
  }
  void keep_unsent() noexcept override { note("keep"); }
  void restart_clock() noexcept override { note("clock"); }
  void give_back() noexcept override { note("give_back"); }
  void drain() noexcept override { note("drain"); }

 private:
  void plan(bool) override {}
  void note(const char* call) { calls_.push_back(name_ + "." + call); }

  std::string name_;
  std::vector<std::string>& calls_;
};

class InFlight : public ::testing::Test {
 protected:
  // A bucket of one tensor of that name; `time_allowed` of 0 is over at once.
  ScriptedExchange& start(char name, std::vector<Progress> moves,
                          std::chrono::seconds time_allowed = std::chrono::seconds(60)) {
    auto made = std::make_unique<ScriptedExchange>(name, pool, calls);
    ScriptedExchange& exchange = *made;
    exchange.moves = std::move(moves);
    names.push_back(std::make_unique<std::string>(1, name));
    const Named tensor{*names.back(), {&value, 1, DType::kF32}};
    exchange.open(std::span(&tensor, 1), {}, transport, Clock::now() + time_allowed, 0);
    EXPECT_TRUE(buckets.start(std::move(made)));
    return exchange;
  }
  std::vector<std::string> new_calls() { return std::exchange(calls, {}); }
  void finish() {
    buckets.reserve_finish();
    buckets.finish_oldest();
  }

  std::shared_ptr<MemoryMeter> meter = std::make_shared<MemoryMeter>();
  BufferPool pool{meter, MemoryMeter::Use::kStaging};
  ScriptedTransport transport{0, 2};
  std::vector<std::string> calls;
  std::vector<std::unique_ptr<std::string>> names;
  float value = 0;
  BucketsInFlight buckets;
};

using Calls = std::vector<std::string>;
const Progress kNext = Progress::waits(Handle::kNone);

TEST_F(InFlight, OnlyTheOldestIsToldSo) {
  start('a', {});
  start('b', {});
  EXPECT_EQ(new_calls(), (Calls{"a.start!", "b.start"}));
}

TEST_F(InFlight, TheOldestThatCanMoveMoves) {
  start('a', {Progress::moved(), kNext, kNext});
  start('b', {Progress::moved(), kNext});
  new_calls();
  const Result<bool> complete = buckets.advance();
  ASSERT_TRUE(complete);
  EXPECT_TRUE(*complete);
  EXPECT_EQ(new_calls(), (Calls{"a.move!", "a.move!", "b.move", "a.move!", "b.move", "a.move!"}));
  EXPECT_EQ(transport.waits.size(), 1u);
}

TEST_F(InFlight, ABucketBehindCompleteOnesIsTheOldest) {
  start('a', {});
  ASSERT_TRUE(*buckets.advance());
  start('b', {});
  finish();
  new_calls();
  ASSERT_TRUE(*buckets.advance());
  EXPECT_EQ(new_calls(), (Calls{"b.move!"}));
}

TEST_F(InFlight, WhenNoneCanMoveAllTheirHandlesAreAwaited) {
  start('a', {Progress::waits(Handle{7}), Progress::waits(Handle{7})}).more = {Handle{8}};
  start('b', {kNext, kNext}).more = {Handle{9}};
  const Result<bool> complete = buckets.advance();
  ASSERT_TRUE(complete);
  EXPECT_FALSE(*complete) << "after one wait the caller may have more to do";
  EXPECT_EQ(transport.waits, (std::vector<std::vector<Handle>>{{Handle{7}, Handle{8}, Handle{9}}}));
}

TEST_F(InFlight, AWaitThatEndsLateStartsAllClocksAnew) {
  start('a', {kNext}, std::chrono::seconds(0));
  start('b', {kNext});
  new_calls();
  ASSERT_TRUE(buckets.advance());
  const Calls called = new_calls();
  EXPECT_NE(std::ranges::find(called, "a.clock"), called.end());
  EXPECT_NE(std::ranges::find(called, "b.clock"), called.end());
}

TEST_F(InFlight, AWaitInTimeLeavesTheClocks) {
  start('a', {kNext});
  new_calls();
  ASSERT_TRUE(buckets.advance());
  EXPECT_EQ(new_calls(), (Calls{"a.move!", "a.move!"}));
}

TEST_F(InFlight, AtTheEndOfAStepExchangesAreSpare) {
  start('a', {});
  start('b', {});
  EXPECT_TRUE(buckets.step_is_open());
  finish();
  finish();
  EXPECT_TRUE(buckets.empty());
  EXPECT_TRUE(buckets.step_is_open()) << "their sends may be under way";
  EXPECT_EQ(buckets.take_spare({}), nullptr);
  new_calls();
  buckets.drain_finished();
  EXPECT_EQ(new_calls(), (Calls{"a.drain", "b.drain"}));
  buckets.end_step();
  EXPECT_EQ(new_calls(), (Calls{"a.give_back", "b.give_back"}));
  EXPECT_FALSE(buckets.step_is_open());
  const Named a{"a", {&value, 1, DType::kF32}};
  const auto spare = buckets.take_spare(std::span(&a, 1));
  ASSERT_NE(spare, nullptr);
  EXPECT_TRUE(spare->tensors().same(std::span(&a, 1))) << "that of the same tensors";
  const auto other = buckets.take_spare(std::span(&a, 1));
  ASSERT_NE(other, nullptr);
  EXPECT_FALSE(other->tensors().same(std::span(&a, 1))) << "any other";
  EXPECT_EQ(buckets.take_spare(std::span(&a, 1)), nullptr);
}

TEST_F(InFlight, AFailedStepIsDrainedBeforeItIsDropped) {
  start('a', {});
  start('b', {});
  start('c', {});
  finish();
  new_calls();
  buckets.drain_all();
  EXPECT_EQ(new_calls(), (Calls{"b.drain", "c.drain", "a.drain"}));
  buckets.drop_all();
  EXPECT_EQ(new_calls(), (Calls{"b.keep", "c.keep"})) << "of what is not finished";
  EXPECT_FALSE(buckets.step_is_open());
}

TEST_F(InFlight, SparesCanBeDropped) {
  start('a', {});
  finish();
  buckets.end_step();
  buckets.drop_spares();
  EXPECT_EQ(buckets.take_spare({}), nullptr);
}

}  // namespace
}  // namespace deltawire::buckets_in_flight_test
