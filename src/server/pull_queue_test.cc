// Which message each worker is sent next.
#include "server/pull_queue.h"

#include <gtest/gtest.h>

namespace deltawire::server_test {
namespace {

constexpr std::uint64_t kElements = 4;  // 16 bytes as they are

SharedBytes bytes(std::size_t count) {
  return std::make_shared<const std::vector<std::byte>>(count);
}

class PullQueueTest : public ::testing::Test {
 protected:
  PullQueueTest() { queue_.begin(5, bytes(20)); }

  void add(std::size_t size, bool first_has_counted = true) {
    queue_.add(bytes(size), [=](std::size_t worker) { return worker != 0 || first_has_counted; });
  }

  // The next pull of a worker, taken at once; null: none.
  const Pull* next(std::size_t worker) {
    queue_.taken(worker);
    return *queue_.next(worker, [this]() -> Result<SharedBytes> {
      ++views_;
      return bytes(20);
    });
  }

  WorkerGroup workers_{2, ServerOptions()};
  PullQueue queue_{workers_, kElements};
  int views_ = 0;
};

TEST_F(PullQueueTest, BeginsWithTheViewForEveryWorker) {
  EXPECT_EQ(queue_.version(), 5U);
  for (const std::size_t worker : {0U, 1U}) {
    EXPECT_TRUE(queue_.pull(worker).is_whole);
    EXPECT_EQ(queue_.pull(worker).bytes(), 20 + pull_head_bytes(1));
    EXPECT_EQ(next(worker), nullptr);
  }
}

TEST_F(PullQueueTest, SendsChangesInOrderWithTheWorkersOwnVerdicts) {
  add(3, false);
  add(4, true);
  EXPECT_EQ(queue_.version(), 7U);
  const std::size_t sizes[] = {3, 4};
  const PushVerdict of_first[] = {PushVerdict::kLate, PushVerdict::kCounted};
  for (std::size_t at = 0; at < 2; ++at) {
    for (const std::size_t worker : {0U, 1U}) {
      const Pull* pull = next(worker);
      ASSERT_NE(pull, nullptr);
      EXPECT_FALSE(pull->is_whole);
      EXPECT_EQ(pull->body->size(), sizes[at]);
      EXPECT_EQ(pull->head, change_head(worker == 0 ? of_first[at] : PushVerdict::kCounted));
    }
  }
  EXPECT_FALSE(queue_.lacks_any(0));
  EXPECT_EQ(next(0), nullptr);
}

// The whole part has 20 bytes and a head of 7, and a byte for each verdict; a change a head of 8.
TEST_F(PullQueueTest, SendsThePartItselfWhereItIsFewerBytes) {
  add(7);
  add(6);
  EXPECT_FALSE(next(0)->is_whole);  // 15 + 14 = 29 bytes, as many as the part
  EXPECT_EQ(views_, 1);
  add(7);
  const Pull* pull = next(1);  // 15 + 14 + 15 of changes, 30 of the part
  EXPECT_TRUE(pull->is_whole);
  EXPECT_EQ(pull->bytes(), 30U);
  EXPECT_FALSE(queue_.lacks_any(1));
  EXPECT_EQ(next(1), nullptr);
}

TEST_F(PullQueueTest, EncodesTheViewOnceForAllWorkers) {
  add(30);
  add(30);
  EXPECT_TRUE(next(0)->is_whole);
  EXPECT_TRUE(next(1)->is_whole);
  EXPECT_EQ(views_, 1);
}

TEST_F(PullQueueTest, OneChangeIsNeverReplaced) {
  add(1000);
  EXPECT_FALSE(next(0)->is_whole);
  EXPECT_EQ(views_, 0);
}

TEST_F(PullQueueTest, CountsHowFarAWorkerIsBehind) {
  add(3);
  add(3);
  EXPECT_TRUE(queue_.is_behind(0, 1));
  next(0);  // takes the first view
  EXPECT_TRUE(queue_.is_behind(0, 2));
  EXPECT_FALSE(queue_.is_behind(0, 3));
  next(0);
  EXPECT_TRUE(queue_.is_behind(0, 1));
  EXPECT_FALSE(queue_.is_behind(0, 2));
}

TEST_F(PullQueueTest, FreesWhatAllWorkersWereSent) {
  const SharedBytes change = bytes(3);
  queue_.add(change, [](std::size_t) { return true; });
  next(0);
  queue_.taken(0);
  queue_.forget_sent();
  EXPECT_EQ(change.use_count(), 2);  // the second worker lacks it
  workers_.drop(1, 5, {ErrorCode::kPeerLost, "gone"});
  queue_.drop(1);
  queue_.forget_sent();
  EXPECT_EQ(change.use_count(), 1);
  EXPECT_EQ(queue_.version(), 6U);
}

TEST_F(PullQueueTest, EndsOnceForEachWorker) {
  EXPECT_TRUE(queue_.end(0));
  EXPECT_FALSE(queue_.end(0));
  EXPECT_TRUE(queue_.is_ended(0));
  EXPECT_FALSE(queue_.is_ended(1));
}

TEST_F(PullQueueTest, AViewThatCannotBeEncodedIsAnError) {
  add(30);
  add(30);
  queue_.taken(0);
  const auto pull =
      queue_.next(0, []() -> Result<SharedBytes> { return fail(ErrorCode::kNoMemory, "no memory"); });
  ASSERT_FALSE(pull);
  EXPECT_EQ(pull.error().code, ErrorCode::kNoMemory);
}

}  // namespace
}  // namespace deltawire::server_test
