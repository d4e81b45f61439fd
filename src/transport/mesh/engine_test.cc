// The engine with links that the test controls: what happens between two of its steps.
#include <array>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <thread>

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "transport/mesh/control_message.h"
#include "transport/mesh/data_stream.h"
#include "transport/mesh/make_mesh.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::engine_test {
namespace {

// A link without a peer: it accepts everything, delivers nothing, and is ready when the test says so.
class ScriptedLink final : public Link {
 public:
  ScriptedLink() : ready_(GuardedFd::open([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); })) {}

  int fd() const noexcept override { return ready_.get(); }
  IoResult send(std::span<const iovec> pieces) noexcept override { return on_send(pieces); }
  IoResult recv(MutBytes into) noexcept override { return on_recv(into); }
  bool stands_alone() const noexcept override { return true; }
  bool delivered() noexcept override { return true; }
  std::size_t unacknowledged() noexcept override { return on_unacknowledged(); }

  void make_readable() const {
    const std::uint64_t one = 1;
    EXPECT_EQ(::write(ready_.get(), &one, sizeof one), 8);
  }
  void make_unreadable() const {
    std::uint64_t count = 0;
    EXPECT_EQ(::read(ready_.get(), &count, sizeof count), 8);
  }

  std::function<IoResult(std::span<const iovec>)> on_send = [](std::span<const iovec> pieces) {
    return IoResult::moved(total_bytes(pieces));
  };
  std::function<IoResult(MutBytes)> on_recv = [](MutBytes) { return IoResult::would_block(); };
  std::function<std::size_t()> on_unacknowledged = [] { return std::size_t{0}; };

 private:
  GuardedFd ready_;
};

IoResult give(Bytes bytes, MutBytes into) {
  EXPECT_LE(bytes.size(), into.size());
  std::memcpy(into.data(), bytes.data(), bytes.size());
  return IoResult::moved(bytes.size());
}

constexpr Ballot kBallot{1, 2};

IoResult give(const ControlMessage& message, MutBytes into) {
  std::vector<std::byte> bytes;
  append_control_message(message, 2, bytes);
  return give(bytes, into);
}

IoResult give_vote(MutBytes into) {
  return give(Vote{0, kBallot}, into);
}

// Rank 0, whose only peer's links are scripted. `links` are gone when it is.
struct Alone {
  ScriptedLink* data = new ScriptedLink;
  ScriptedLink* control = new ScriptedLink;
  std::unique_ptr<Link> own_data{data};  // until there is a transport
  std::unique_ptr<Link> own_control{control};

  std::unique_ptr<Transport> connect() {
    std::vector<PeerLinks> links(2);
    links[1] = {std::move(own_data), std::move(own_control)};
    auto self = make_mesh({0, 0}, std::move(links), LinkOptions{}, nullptr);
    EXPECT_TRUE(self.has_value());
    return std::move(*self);
  }
};

// A long system call, which the test ends.
class LongCall {
 public:
  void run() {
    began_.set_value();
    ended_.get_future().wait();
  }
  void await_begin() { begun_.wait(); }
  void end() { ended_.set_value(); }

 private:
  std::promise<void> began_;
  std::promise<void> ended_;
  std::future<void> begun_ = began_.get_future();
};

constexpr std::size_t kLong = std::size_t{1} << 20;

class Engine : public ::testing::Test {
 protected:
  // Begins a send that stays in the kernel while others continue.
  void begin_long_send() {
    links_.data->on_send = [this](std::span<const iovec> pieces) {
      call_.run();
      return IoResult::moved(total_bytes(pieces));
    };
    self_ = links_.connect();
    poster_ = std::thread([this] { (void)send_bytes(*self_, 1, 1, bytes_); });
    call_.await_begin();
  }

  // The wait ends soon after the call, not only when it looks again by itself, at half of its time.
  void end_call_while_waiting(Handle handle) {
    std::thread waiter([&] { EXPECT_TRUE(self_->wait(handle, in(120s))); });
    std::this_thread::sleep_for(20ms);
    const Deadline ended = Clock::now();
    call_.end();
    waiter.join();
    EXPECT_LT(Clock::now() - ended, 25s);
  }

  Alone links_;
  LongCall call_;
  std::vector<std::byte> bytes_ = pattern(kLong, 1);
  std::vector<std::byte> got_ = std::vector<std::byte>(10);
  std::unique_ptr<Transport> self_;
  std::thread poster_;
};

TEST_F(Engine, NoWaitFailsWhileTheKernelStillCopies) {
  begin_long_send();
  const std::array receives{self_->post_recv(1, 1, got_), self_->post_recv(1, 2, got_)};
  std::atomic<int> ended{0};
  std::thread waiter([&] {
    EXPECT_FALSE(self_->wait(receives[0], soon()));
    ++ended;
  });
  std::thread waiter_for_any([&] {
    EXPECT_FALSE(self_->wait_any(std::span(receives).last(1), soon()));
    ++ended;
  });
  self_->abort({ErrorCode::kAborted, "enough", kNoSuspect});
  EXPECT_TRUE(self_->done(receives[0]));
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(ended, 0);
  call_.end();
  waiter.join();
  waiter_for_any.join();
  poster_.join();
}

// A second wait for it must not free its record a second time.
// What the peer sends to a closed connection resets it: then it never hears what it has not acknowledged.
TEST_F(Engine, ARankThatLeavesWaitsUntilItsGoodbyeIsAcknowledged) {
  Alone links;
  std::atomic<std::size_t> unacknowledged = 1;
  links.control->on_unacknowledged = [&] { return unacknowledged.load(); };
  std::unique_ptr<Transport> self = links.connect();
  const auto left = std::async(std::launch::async, [&] { self.reset(); });
  EXPECT_EQ(left.wait_for(100ms), std::future_status::timeout);
  unacknowledged = 0;
  left.wait();
}

TEST_F(Engine, AnOperationThatFailsIsForgottenOnce) {
  begin_long_send();
  const Handle receive = self_->post_recv(1, 1, got_);
  self_->abort({ErrorCode::kAborted, "enough", kNoSuspect});
  std::vector<std::thread> waiters;
  for (int i = 0; i < 2; ++i) {
    waiters.emplace_back([&] { EXPECT_FALSE(self_->wait(receive, soon())); });
  }
  std::this_thread::sleep_for(50ms);
  call_.end();
  for (std::thread& waiter : waiters) waiter.join();
  poster_.join();
  EXPECT_NE(self_->post_recv(1, 2, got_), self_->post_recv(1, 3, got_));
}

// The voting thread drives. Another thread's wait passes its deadline, and that thread reads the missing
// vote.
TEST_F(Engine, TheDriverLearnsOfAVoteThatAnotherThreadHasRead) {
  std::atomic<bool> voted{false};
  std::atomic<bool> answered{false};
  links_.control->on_send = [&](std::span<const iovec> pieces) {
    voted = true;
    return IoResult::moved(total_bytes(pieces));
  };
  links_.control->on_recv = [&](MutBytes into) {
    return voted && !answered.exchange(true) ? give_vote(into) : IoResult::would_block();
  };
  self_ = links_.connect();
  self_->set_arrival_timeout(20s);
  std::thread voter([&] { EXPECT_TRUE(self_->vote(kBallot, in(120s))); });
  while (!voted) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);
  self_->arrive(2);
  EXPECT_FALSE(self_->wait(self_->post_recv(1, 1, got_), in(50ms)));
  EXPECT_TRUE(answered);
  const Deadline told = Clock::now();
  voter.join();
  EXPECT_LT(Clock::now() - told, 25s) << "by itself it looks at half of its time";
  self_.reset();  // before what its links use
}

// The peer's vote has arrived when this rank freezes, just before it sends its own. Meanwhile the peer gives
// up on it, and reverts the step.
TEST_F(Engine, ARankThatWasFrozenBeforeItsVoteHearsTheOthersBeforeItCounts) {
  std::deque<ControlMessage> due{Vote{0, kBallot}};
  bool voted = false;
  links_.control->on_recv = [&](MutBytes into) {
    if (due.empty()) return IoResult::would_block();
    const ControlMessage message = due.front();
    due.pop_front();
    if (due.empty() && voted) links_.control->make_unreadable();
    return give(message, into);
  };
  links_.control->on_send = [&](std::span<const iovec> pieces) {
    if (!std::exchange(voted, true)) {
      RankSet frozen(2);
      frozen.add(0);
      due = {Abort{{ErrorCode::kTimeout, "rank 0 answers nothing", 0}, 1}, Verdict{0, frozen}};
      links_.control->make_readable();
    }
    return IoResult::moved(total_bytes(pieces));
  };
  self_ = links_.connect();
  const auto ballots = self_->vote(kBallot, in(120s));
  ASSERT_FALSE(ballots) << "it counts what the other one has reverted";
  EXPECT_EQ(ballots.error().suspect, 0);
  EXPECT_EQ(self_->last_commit().step, kNoStep);
  EXPECT_EQ(self_->last_commit().unheard, std::vector<int>{}) << "the other one has said where it stands";
  self_.reset();  // before what its links use
}

// Bytes to the peer are lost, and bytes from it may be, too.
TEST_F(Engine, APeerOutOfReachIsDistinguishedFromOneThatRunsOtherSteps) {
  for (const bool heard : {true, false}) {
    Alone links;
    std::atomic<std::size_t> sent{0};
    links.control->on_send = [&](std::span<const iovec> pieces) {
      sent += total_bytes(pieces);
      return IoResult::moved(total_bytes(pieces));
    };
    links.control->on_unacknowledged = [&] { return sent.load(); };
    std::atomic<bool> is_asked{false};
    links.control->on_recv = [&](MutBytes into) {
      if (!heard || sent == 0 || is_asked.exchange(true)) return IoResult::would_block();
      return give(Waiting{0, 0}, into);
    };
    auto self = links.connect();
    const auto late = self->wait(self->post_recv(1, 1, got_), in(2s));
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().suspect, 1);
    const std::string& message = late.error().message;
    EXPECT_NE(message.find("its machine has acknowledged nothing that rank 0 has sent for "),
              std::string::npos)
        << message;
    EXPECT_NE(message.find(heard ? "rank 1 is heard, but" : "rank 1 answers nothing, and"), std::string::npos)
        << message;
    self.reset();  // before what its links use
  }
}

// The peer waits, too, so it is asked at once, but the deadline passes before its answer arrives. It is
// optional: if it stayed silent, it would be dropped.
TEST_F(Engine, APeerThatIsAskedJustBeforeTheDeadlineHasTimeToAnswer) {
  std::atomic<int> heard{0};
  std::atomic<bool> waits{false};
  Deadline answer_at = Deadline::max();
  links_.control->on_send = [&](std::span<const iovec> pieces) {
    if (waits) answer_at = std::min(answer_at, Clock::now() + 300ms);
    return IoResult::moved(total_bytes(pieces));
  };
  links_.control->on_recv = [&](MutBytes into) {
    if (heard == 0) {
      links_.control->make_unreadable();
      ++heard;
      return give(Waiting{0, 0}, into);
    }
    if (heard == 2 || Clock::now() < answer_at) return IoResult::would_block();
    ++heard;
    return give(Here{0}, into);
  };
  self_ = links_.connect();
  self_->set_optional(std::array{1});
  links_.control->make_readable();
  while (heard == 0) std::this_thread::sleep_for(1ms);
  waits = true;
  const auto dropped = self_->wait(self_->post_recv(1, 1, got_), in(30ms));
  ASSERT_FALSE(dropped);
  EXPECT_EQ(heard, 2);
  EXPECT_NE(dropped.error().text().find("wait for each other"), std::string::npos) << dropped.error().message;
  self_.reset();  // before what its links use
}

// A long message waits for its receive, but not forever; its receive comes in time, and then its bytes arrive
// slowly.
TEST_F(Engine, TheDriverSleepsWhileAnotherThreadReceives) {
  std::promise<void> begun;
  std::size_t given = 0;
  links_.data->on_recv = [&](MutBytes into) {
    if (given == 0) {
      links_.data->make_unreadable();
      begun.set_value();
      given = kMessageHeaderBytes;
      return give(encode_message_header({1, kLong}), into);
    }
    const std::size_t count = std::min(into.size(), kMessageHeaderBytes + kLong - given);
    if (count == 0) return IoResult::would_block();
    if (given == kMessageHeaderBytes) call_.run();
    given += count;
    return IoResult::moved(count);
  };
  std::atomic<bool> answers{false};
  links_.control->on_recv = [&](MutBytes into) {
    if (!answers.exchange(false)) return IoResult::would_block();
    links_.control->make_unreadable();
    return give_vote(into);
  };
  self_ = links_.connect();
  std::thread driver([&] { EXPECT_TRUE(self_->vote(kBallot, in(120s))); });
  std::this_thread::sleep_for(20ms);
  links_.data->make_readable();
  begun.get_future().wait();
  std::vector<std::byte> into(kLong);
  poster_ = std::thread([&] { EXPECT_TRUE(self_->wait(self_->post_recv(1, 1, into), soon())); });
  call_.await_begin();
  clockid_t time_of_driver{};
  ASSERT_EQ(::pthread_getcpuclockid(driver.native_handle(), &time_of_driver), 0);
  EXPECT_TRUE(comes_to_rest(time_of_driver));
  call_.end();
  poster_.join();
  answers = true;
  links_.control->make_readable();
  driver.join();
  self_.reset();  // before what its links use
}

// The I/O thread receives a message when a thread begins to wait for it, and so to drive. The new driver
// receives the rest, and doesn't poll for it while the I/O thread still receives.
TEST_F(Engine, AThreadThatTakesOverReceivesTheRest) {
  constexpr std::size_t kAll = kMessageHeaderBytes + kLong;
  std::size_t given = 0;
  links_.data->on_recv = [&](MutBytes into) {
    if (given == 0) {
      given = kMessageHeaderBytes;
      return give(encode_message_header({1, kLong}), into);
    }
    if (given == kMessageHeaderBytes) call_.run();
    const std::size_t count = given == kMessageHeaderBytes ? kLong / 2 : kAll - given;
    given += count;
    if (given == kAll) links_.data->make_unreadable();
    return IoResult::moved(count);
  };
  self_ = links_.connect();
  const Handle receive = self_->post_recv(1, 1, bytes_);
  links_.data->make_readable();
  call_.await_begin();
  end_call_while_waiting(receive);
  self_.reset();  // before what its links use
}

TEST_F(Engine, WhoTakesOverSendsTheRest) {
  int sends = 0;
  links_.data->on_send = [&](std::span<const iovec> pieces) {
    switch (sends++) {
      case 0: return IoResult::would_block();
      case 1: call_.run(); return IoResult::moved(kLong / 2);
      case 2: return IoResult::would_block();
      default: return IoResult::moved(total_bytes(pieces));
    }
  };
  self_ = links_.connect();
  const Handle send = send_bytes(*self_, 1, 1, bytes_);
  call_.await_begin();
  end_call_while_waiting(send);
  self_.reset();  // before what its links use
}

}  // namespace
}  // namespace deltawire::test::engine_test
