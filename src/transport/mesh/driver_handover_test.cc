// Unit tests of Driver: threads that wait, the I/O thread, and the handover between them.
#include <thread>

#include "transport/mesh/driver.h"
#include "transport/mesh/mesh_parts_testing.h"
#include "transport/message_testing.h"

namespace deltawire::test::driver_handover_test {
namespace {

using namespace std::chrono_literals;

// Work that does nothing but count which thread did it.
class CountedWork final : public Driver::Work {
 public:
  Deadline prepare(std::span<pollfd> entries) noexcept override {
    EXPECT_EQ(entries.size(), 4u);
    prepared_by = std::this_thread::get_id();
    return kNever;
  }
  void serve(Driver::Lock& lock, std::span<const pollfd> entries) noexcept override {
    EXPECT_TRUE(lock.owns_lock());
    EXPECT_EQ(entries.size(), 4u);
    served_by.push_back(std::this_thread::get_id());
  }
  bool may_end() override { return ends; }

  std::thread::id prepared_by;
  std::vector<std::thread::id> served_by;
  bool ends = false;
};

class DriverHandover : public ::testing::Test {
 protected:
  void SetUp() override {
    io_thread_ = std::thread([this] {
      Driver::Lock lock(mutex_);
      driver_.run(lock, work_);
    });
  }
  void TearDown() override {
    {
      const Driver::Lock lock(mutex_);
      work_.ends = true;
      driver_.wake();
    }
    io_thread_.join();
  }

  // Whether it holds at last; the lock is held.
  template <class Holds>
  bool comes(Driver::Lock& lock, Holds holds) {
    for (const Deadline end = soon(); !holds() && Clock::now() < end;) {
      lock.unlock();
      std::this_thread::sleep_for(1ms);
      lock.lock();
    }
    return holds();
  }
  bool io_thread_polls(Driver::Lock& lock) {
    return comes(lock, [this] { return work_.prepared_by == io_thread_.get_id(); });
  }

  std::mutex mutex_;
  OperationTable operations_;
  Waiters waiters_{operations_};
  Driver driver_{open_eventfd(), 4, waiters_};
  CountedWork work_;
  Operation operation_;
  Waiter waiter_{.operation = &operation_, .deadline = kNever};
  std::thread io_thread_;
};

TEST_F(DriverHandover, TheIoThreadDrivesWhileNobodyWaits) {
  Driver::Lock lock(mutex_);
  ASSERT_TRUE(io_thread_polls(lock));
  EXPECT_TRUE(work_.served_by.empty()) << "it sleeps";
  EXPECT_TRUE(driver_.wake_polling());
  EXPECT_TRUE(comes(lock, [this] { return work_.served_by.size() == 1; }));
  EXPECT_EQ(work_.served_by.at(0), io_thread_.get_id());
}

TEST_F(DriverHandover, AWaiterDrivesAloneAndOneAtATime) {
  Driver::Lock lock(mutex_);
  ASSERT_TRUE(io_thread_polls(lock));
  Waiter second{.operation = &operation_, .deadline = kNever};
  driver_.take_over(waiter_);
  driver_.take_over(second);
  EXPECT_TRUE(driver_.is_driven_by(waiter_));
  EXPECT_FALSE(driver_.is_driven_by(second));
  // What wakes the I/O thread now finds it no longer in charge.
  EXPECT_FALSE(driver_.wake_polling());
  for (int round = 0; round < 3; ++round) driver_.drive(lock, work_, Clock::now());
  EXPECT_EQ(work_.served_by, std::vector(3, std::this_thread::get_id()));
  driver_.hand_back(true);
  EXPECT_TRUE(io_thread_polls(lock));
}

TEST_F(DriverHandover, TheDriverLearnsOfTheEndOfItsOwnWaitAlone) {
  bool ended = false;
  std::thread driving([&] {
    Driver::Lock lock(mutex_);
    driver_.take_over(waiter_);
    driver_.drive(lock, work_, kNever);
    ended = waiters_.has_ended(waiter_);
    driver_.hand_back(false);
  });
  const std::thread::id id = driving.get_id();
  {
    Driver::Lock lock(mutex_);
    ASSERT_TRUE(comes(lock, [&] { return work_.prepared_by == id; }));
    driver_.tell();
    lock.unlock();
    std::this_thread::sleep_for(20ms);
    lock.lock();
    operation_.done = true;
    driver_.tell();
  }
  driving.join();
  EXPECT_TRUE(ended);
}

TEST_F(DriverHandover, AllWaitersAreWokenWhateverTheyWaitFor) {
  std::thread driving([&] {
    Driver::Lock lock(mutex_);
    driver_.take_over(waiter_);
    driver_.drive(lock, work_, in(20s));
    driver_.hand_back(false);
  });
  const Deadline began = Clock::now();
  {
    Driver::Lock lock(mutex_);
    const std::thread::id id = driving.get_id();
    ASSERT_TRUE(comes(lock, [&] { return work_.prepared_by == id; }));
    driver_.tell_all();
  }
  driving.join();
  EXPECT_LT(Clock::now() - began, 15s);
}

// After some milliseconds of a drive the I/O thread no longer looks by itself.
TEST_F(DriverHandover, TheIoThreadComesBackFromADeepRest) {
  Driver::Lock lock(mutex_);
  for (const bool at_once : {false, true}) {
    ASSERT_TRUE(io_thread_polls(lock));
    EXPECT_TRUE(driver_.wake_polling());
    driver_.take_over(waiter_);
    lock.unlock();
    std::this_thread::sleep_for(20ms);  // until it has seen that it no longer drives
    lock.lock();
    driver_.drive(lock, work_, Clock::now());  // takes the wake, which was for the I/O thread
    driver_.drive(lock, work_, in(30ms));
    driver_.hand_back(at_once);
    EXPECT_TRUE(io_thread_polls(lock)) << at_once;
  }
}

}  // namespace
}  // namespace deltawire::test::driver_handover_test
