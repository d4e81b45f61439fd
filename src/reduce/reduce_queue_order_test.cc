// What the queue asks of its reducer, and when: with a reducer that only writes it down.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reduce/rank_threads_testing.h"
#include "reduce/reduce_queue.h"

namespace deltawire::reduce_queue_order_test {
namespace {

using std::chrono::seconds;

// Everything but the constructor's arguments is the communication thread's own until the queue has stopped.
class WritingReducer final : public WakeableReducer {
 public:
  // advance() keeps the oldest bucket back until `submitted` holds, and then for some more calls, so that the
  // queue has every chance to begin more than it should.
  explicit WritingReducer(std::function<bool()> submitted) : submitted_(std::move(submitted)) {}

  Status begin(const Bucket& bucket, const Step& step, Transport&, Deadline deadline) override {
    for (const Named& tensor : bucket.tensors) names.emplace_back(tensor.name);
    deadlines.push_back(deadline);
    if (step.number == failing_step) return fail(ErrorCode::kRange, "this step is bad", 0);
    EXPECT_TRUE(open_.empty() || open_.back().number == step.number) << "two steps at once";
    open_.push_back(step);
    most_in_flight = std::max(most_in_flight, open_.size());
    return {};
  }
  Result<bool> advance() override {
    if (open_.empty()) return fail(ErrorCode::kState, "nothing is in flight");
    while (!submitted_()) std::this_thread::yield();
    return ++held_back_ > 8;
  }
  Result<Report> finish() override {
    held_back_ = 0;
    open_.erase(open_.begin());
    return Report{};
  }
  std::vector<TensorUse> explain(std::span<const Named>, std::uint64_t) const override { return {}; }
  Memory memory() const noexcept override { return {}; }
  std::string spec() const override { return "writing"; }
  Status mask_sent(std::string_view, std::span<float>) const override { return {}; }
  Result<std::vector<std::byte>> save() const override { return std::vector<std::byte>{}; }
  Status load(Bytes) override { return {}; }
  Status load_resized(const SavedRanks&) override { return {}; }

  std::uint64_t failing_step = 1000;
  std::vector<std::string> names;
  std::vector<Deadline> deadlines;
  std::size_t most_in_flight = 0;

 private:
  std::function<bool()> submitted_;
  std::vector<Step> open_;
  int held_back_ = 0;
};

// Submits a bucket for each of `steps`; the buckets of a step are numbered from 0.
std::vector<std::string> run_queue(WritingReducer& reducer, std::atomic<bool>& submitted,
                                   const std::vector<std::uint64_t>& steps, std::size_t max_in_flight) {
  std::vector<std::string> errors;
  run_ranks(1, {}, [&](int, Transport& transport) {
    ReduceQueue queue(reducer, transport, max_in_flight);
    std::uint32_t bucket = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      bucket = i > 0 && steps[i] == steps[i - 1] ? bucket + 1 : 0;
      std::string name = "w" + std::to_string(i);
      const Named tensor{name, {nullptr, 0, DType::kF32}, 0};
      const bool last = i + 1 == steps.size() || steps[i + 1] != steps[i];
      queue.submit(std::span(&tensor, 1), {steps[i], bucket, last}, seconds(3600),
                   [&errors](const Result<Report>& report) {
                     errors.push_back(report ? "" : report.error().message);
                   });
      name.assign(name.size(), '?');  // the queue has its own copy
    }
    submitted = true;
    queue.stop();
  });
  return errors;
}

TEST(ReduceQueueOrder, AsManyBucketsAsAllowedAreInFlightAndNoMore) {
  for (const std::size_t limit : {1U, 2U, 4U}) {
    std::atomic<bool> submitted = false;
    WritingReducer reducer([&] { return submitted.load(); });
    EXPECT_EQ(run_queue(reducer, submitted, std::vector<std::uint64_t>(9, 5), limit),
              std::vector<std::string>(9));
    EXPECT_EQ(reducer.most_in_flight, limit);
  }
}

TEST(ReduceQueueOrder, AStepBeginsWhenTheOneBeforeHasEnded) {
  std::atomic<bool> submitted = false;
  WritingReducer reducer([&] { return submitted.load(); });
  EXPECT_EQ(run_queue(reducer, submitted, {1, 1, 2, 3, 3, 3}, 4), std::vector<std::string>(6));
  EXPECT_EQ(reducer.most_in_flight, 3u);
  EXPECT_EQ(reducer.names, (std::vector<std::string>{"w0", "w1", "w2", "w3", "w4", "w5"}));
}

TEST(ReduceQueueOrder, TheTimeoutCountsFromTheBeginning) {
  std::atomic<bool> submitted = false;
  WritingReducer reducer([&] { return submitted.load(); });
  const Deadline before = Clock::now();
  EXPECT_EQ(run_queue(reducer, submitted, {1, 2}, 4), std::vector<std::string>(2));
  ASSERT_EQ(reducer.deadlines.size(), 2u);
  for (const Deadline deadline : reducer.deadlines) {
    EXPECT_GE(deadline, before + seconds(3600));
    EXPECT_LE(deadline, Clock::now() + seconds(3600));
  }
}

TEST(ReduceQueueOrder, ABucketThatCannotBeginFailsAllLaterOnesUnasked) {
  std::atomic<bool> submitted = false;
  WritingReducer reducer([&] { return submitted.load(); });
  reducer.failing_step = 2;
  const std::string bad = "this step is bad";
  EXPECT_EQ(run_queue(reducer, submitted, {1, 2, 3, 4}, 4), (std::vector<std::string>{"", bad, bad, bad}));
  EXPECT_EQ(reducer.names, (std::vector<std::string>{"w0", "w1"}));
}

// done may stop the queue: the thread can't wait for itself.
TEST(ReduceQueueOrder, DoneMayStopTheQueue) {
  run_ranks(1, {}, [](int, Transport& transport) {
    WritingReducer reducer([] { return true; });
    ReduceQueue queue(reducer, transport);
    std::atomic<int> ended = 0;
    queue.submit({}, {0, 0, true}, seconds(10), [&](const Result<Report>&) {
      queue.stop();
      ++ended;
    });
    while (ended == 0) std::this_thread::yield();
    bool refused = false;
    queue.submit({}, {1, 0, true}, seconds(10), [&](const Result<Report>& report) { refused = !report; });
    EXPECT_TRUE(refused);
  });
}

}  // namespace
}  // namespace deltawire::reduce_queue_order_test
