// Unit tests of Waiters: when waits end, and how much time they have.
#include <array>

#include <gtest/gtest.h>

#include "transport/mesh/driver.h"

namespace deltawire::test::waiters_test {
namespace {

using namespace std::chrono_literals;

constexpr Deadline kStart{1h};

class WaitersAlone : public ::testing::Test {
 protected:
  OperationTable operations_;
  Waiters waiters_{operations_};
  Operation& first_ = operations_.add();
  Operation& second_ = operations_.add();
  const std::array<Handle, 2> both_{Handle{first_.handle}, Handle{second_.handle}};
};

TEST_F(WaitersAlone, AWaitEndsWithItsOperationOrAnyOtherOfIts) {
  Waiter one{.operation = &first_, .deadline = kNever};
  Waiter any{.operation = &first_, .deadline = kNever, .others = both_};
  EXPECT_FALSE(waiters_.has_ended(one) || waiters_.has_ended(any));
  second_.done = true;
  EXPECT_FALSE(waiters_.has_ended(one));
  EXPECT_TRUE(waiters_.has_ended(any));
  first_.done = true;
  EXPECT_TRUE(waiters_.has_ended(one));
}

TEST_F(WaitersAlone, AWakeEndsOneWaitThatAllowsIt) {
  Waiter deaf{.operation = &first_, .deadline = kNever};
  Waiter heeds{.operation = &first_, .deadline = kNever, .heeds_wake = true};
  waiters_.wake();
  EXPECT_FALSE(waiters_.has_ended(deaf));
  EXPECT_TRUE(waiters_.has_ended(heeds));
  waiters_.take_wake();
  EXPECT_FALSE(waiters_.has_ended(heeds));
}

TEST_F(WaitersAlone, OperationsKnowWhoWaitsForThemWhileItDoes) {
  Waiter any{.operation = &first_, .deadline = kNever, .others = both_};
  waiters_.add(any, false);
  EXPECT_EQ(first_.waiter, &any.changed);
  EXPECT_EQ(second_.waiter, &any.changed);
  ASSERT_EQ(waiters_.all().size(), 1u);
  EXPECT_EQ(waiters_.all()[0], &any);
  waiters_.remove(any);
  EXPECT_EQ(first_.waiter, nullptr);
  EXPECT_EQ(second_.waiter, nullptr);
  EXPECT_TRUE(waiters_.all().empty());
}

TEST_F(WaitersAlone, AWaitIsAnnouncedAtHalfOfItsTimeAndSoonWhereOthersAnnounce) {
  Waiter calm{.operation = &first_, .deadline = kStart + 10s, .began_at = kStart};
  waiters_.add(calm, false);
  EXPECT_EQ(calm.announce_at, kStart + 5s);
  waiters_.remove(calm);
  Waiter prompt{.operation = &first_, .deadline = kStart + 10s, .began_at = kStart};
  waiters_.add(prompt, true);
  EXPECT_EQ(prompt.announce_at, kStart + 20ms);
  EXPECT_EQ(prompt.span, 10s);
  waiters_.remove(prompt);
  Waiter late{.operation = &first_, .deadline = kStart - 1s, .began_at = kStart};
  waiters_.add(late, true);
  EXPECT_EQ(late.span, 0s);
  EXPECT_EQ(late.announce_at, kStart);
  waiters_.remove(late);
}

// As long as the longest wait so far, from the departure on: for current waits and for those that follow.
TEST_F(WaitersAlone, ADepartureGivesAllTheirTimeAgain) {
  Waiter longer{.operation = &first_, .deadline = kStart + 10s, .began_at = kStart};
  Waiter shorter{.operation = &second_, .deadline = kStart + 4s, .began_at = kStart};
  waiters_.add(longer, false);
  waiters_.add(shorter, false);
  shorter.announced = true;
  shorter.asked_at = kStart + 2s;
  waiters_.renew_all(kStart + 3s);
  for (const Waiter* waiter : {&longer, &shorter}) {
    EXPECT_EQ(waiter->deadline, kStart + 13s);
    EXPECT_EQ(waiter->announce_at, kStart + 8s);
    EXPECT_FALSE(waiter->announced);
    EXPECT_EQ(waiter->asked_at, kNever);
  }
  waiters_.remove(longer);
  waiters_.remove(shorter);
  Waiter next{.operation = &first_, .deadline = kStart + 5s, .began_at = kStart + 4s};
  waiters_.add(next, false);
  EXPECT_EQ(next.deadline, kStart + 13s);
  EXPECT_EQ(next.span, 9s);
  next.deadline = kStart + 60s;
  waiters_.renew_all(kStart + 5s);
  EXPECT_EQ(next.deadline, kStart + 60s) << "nobody's time gets shorter";
  waiters_.remove(next);
}

TEST_F(WaitersAlone, OneMayHaveItsTimeAgainAlone) {
  Waiter one{.operation = &first_, .deadline = kStart + 10s, .began_at = kStart};
  Waiter other{.operation = &second_, .deadline = kStart + 10s, .began_at = kStart};
  waiters_.add(one, false);
  waiters_.add(other, false);
  waiters_.renew(one, kStart + 9s);
  EXPECT_EQ(one.deadline, kStart + 19s);
  EXPECT_EQ(other.deadline, kStart + 10s);
  waiters_.remove(one);
  waiters_.remove(other);
}

TEST_F(WaitersAlone, NoTimeIsGivenAgainForDays) {
  Waiter waiter{.operation = &first_, .deadline = kNever, .began_at = kStart};
  waiters_.add(waiter, false);
  waiter.deadline = kStart + 1s;
  waiters_.renew_all(kStart);
  EXPECT_EQ(waiter.deadline, kStart + 24h);
  waiters_.remove(waiter);
}

}  // namespace
}  // namespace deltawire::test::waiters_test
