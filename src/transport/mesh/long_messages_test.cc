// Long messages in data streams: they wait for their receives, and are copied without the lock.
#include <algorithm>
#include <future>
#include <memory>
#include <mutex>

#include <gtest/gtest.h>

#include "transport/links/playback_link_testing.h"
#include "transport/mesh/data_stream.h"
#include "transport/mesh/peers.h"

namespace deltawire::long_messages_test {
namespace {

using Kind = StreamStep::Kind;
constexpr std::chrono::milliseconds kForEver = std::chrono::hours(1);
constexpr std::size_t kLong = 5 * DataReceiver::kLongBytes;

struct Receive {
  Receive(Tag tag, std::size_t length) : bytes(length) {
    operation.kind = Operation::Kind::kReceive;
    operation.tag = tag;
    operation.capacity = bytes;
  }
  bool is_whole(std::byte value) const {
    return operation.done && std::ranges::count(bytes, value) == std::ssize(bytes);
  }
  std::vector<std::byte> bytes;
  Operation operation;
};

void add_message(PlaybackLink& link, Tag tag, std::size_t length) {
  link.at_once = ~std::size_t{0};
  link.add(encode_message_header({tag, length}));
  link.add(length, static_cast<std::byte>(tag));
}

StreamStep step_while_it_moves(DataReceiver& receiver) {
  StreamStep step;
  for (int i = 0; i < 100 && step.kind == Kind::kMoved; ++i) step = receiver.step();
  return step;
}

TEST(Patience, ALongMessageWaitsInItsStreamForItsReceive) {
  PlaybackLink link;
  UnexpectedBlocks blocks;
  DataReceiver receiver(1, link, blocks, kForEver);
  add_message(link, 1, kLong);
  for (int i = 0; i < 3; ++i) {
    const StreamStep step = receiver.step();
    EXPECT_EQ(step.kind, Kind::kPaused);
    EXPECT_GT(step.retry_at, Clock::now());
    EXPECT_LT(step.retry_at, Clock::now() + 2 * kForEver);
  }
  EXPECT_GT(link.left(), kLong / 2);
  Receive receive(1, kLong);
  EXPECT_EQ(receiver.post(receive.operation).kind, Kind::kMoved);
  EXPECT_EQ(step_while_it_moves(receiver).kind, Kind::kIdle);
  EXPECT_TRUE(receive.is_whole(std::byte{1}));
  EXPECT_EQ(blocks.spare(), 1u) << "its head was read into one; it never was an unexpected one";
}

TEST(Patience, StartsAgainWithTheNextReceive) {
  PlaybackLink link;
  UnexpectedBlocks blocks;
  DataReceiver receiver(1, link, blocks, std::chrono::milliseconds(20));
  for (const Tag tag : {Tag{1}, Tag{2}}) {
    add_message(link, tag, kLong);
    StreamStep step = step_while_it_moves(receiver);
    ASSERT_EQ(step.kind, Kind::kPaused);
    while (Clock::now() < step.retry_at) {
    }
    EXPECT_EQ(step_while_it_moves(receiver).kind, Kind::kIdle);
    EXPECT_EQ(link.left(), 0u);
    Receive receive(tag, kLong);
    EXPECT_EQ(receiver.post(receive.operation).kind, Kind::kMoved);
    EXPECT_TRUE(receive.is_whole(static_cast<std::byte>(tag)));
  }
}

// Not where waiting costs more than it saves, nor where an awaited message may be behind.
TEST(Patience, IsForLongMessagesThatBlockNoOther) {
  PlaybackLink link;
  UnexpectedBlocks blocks;
  DataReceiver receiver(1, link, blocks, kForEver);
  add_message(link, 1, DataReceiver::kLongBytes - 1);
  EXPECT_EQ(step_while_it_moves(receiver).kind, Kind::kIdle);
  EXPECT_EQ(link.left(), 0u);
  add_message(link, 2, kLong);
  add_message(link, 3, 10);
  EXPECT_EQ(step_while_it_moves(receiver).kind, Kind::kPaused);
  Receive behind(3, 10);
  EXPECT_EQ(receiver.post(behind.operation).kind, Kind::kMoved);
  EXPECT_EQ(step_while_it_moves(receiver).kind, Kind::kIdle);
  EXPECT_TRUE(behind.is_whole(std::byte{3}));
}

// On other links the bytes may only move when they are read, so reading late costs time.
TEST(Patience, IsForStreamsThatTheKernelReceives) {
  class KernelsLink final : public PlaybackLink {
    bool stands_alone() const noexcept override { return true; }
  };
  const auto other = [] { return std::make_unique<PlaybackLink>(); };
  UnexpectedBlocks blocks;
  auto kernels = std::make_unique<KernelsLink>();
  add_message(*kernels, 1, kLong);
  Peer patient(1, {std::move(kernels), other()}, 2, blocks);
  EXPECT_EQ(step_while_it_moves(patient.receiver).kind, Kind::kPaused);
  auto line = other();
  add_message(*line, 1, kLong);
  Peer hasty(1, {std::move(line), other()}, 2, blocks);
  EXPECT_EQ(step_while_it_moves(hasty.receiver).kind, Kind::kIdle);
}

// A link that checks, from another thread, whether the lock is free, and may then act as that thread.
class ProbingLink final : public Link {
 public:
  explicit ProbingLink(std::mutex& mutex) : mutex_(&mutex) {}

  int fd() const noexcept override { return -1; }
  IoResult send(std::span<const iovec> pieces) noexcept override {
    probe();
    return IoResult::moved(total_bytes(pieces));
  }
  IoResult recv(MutBytes into) noexcept override {
    if (!played.empty()) {
      const std::size_t count = std::min(into.size(), played.size());
      std::copy_n(played.begin(), count, into.begin());
      played.erase(played.begin(), played.begin() + static_cast<std::ptrdiff_t>(count));
      return IoResult::moved(count);
    }
    probe();
    std::ranges::fill(into, std::byte{7});
    return IoResult::moved(into.size());
  }
  bool delivered() noexcept override { return true; }

  std::vector<std::byte> played;  // what recv() gives first, without a look
  std::function<void()> meanwhile = [] {};
  int free = 0;
  int held = 0;

 private:
  void probe() {
    std::async(std::launch::async, [this] {
      if (!mutex_->try_lock()) {
        ++held;
        return;
      }
      ++free;
      meanwhile();
      mutex_->unlock();
    }).wait();
  }

  std::mutex* mutex_;
};

struct Unlocking {
  std::mutex mutex;
  std::unique_lock<std::mutex> lock{mutex};
  CallsInKernel calls;
  ProbingLink link{mutex};
  UnexpectedBlocks blocks;

  ScopedUnlock scoped_unlock() { return {lock, calls}; }
};

TEST(ScopedUnlock, ReleasesTheLockForLongCopiesAndTakesItAgain) {
  for (const std::size_t length : {ScopedUnlock::kMuch - kMessageHeaderBytes - 1, ScopedUnlock::kMuch}) {
    Unlocking self;
    const std::vector<std::byte> bytes(length);
    Operation send;
    send.pieces = {bytes};
    send.length = length;
    DataSender sender(self.link);
    sender.post(send);
    EXPECT_EQ(sender.step(self.scoped_unlock()).kind, Kind::kIdle);
    EXPECT_TRUE(send.done && self.lock.owns_lock());
    EXPECT_EQ(self.link.free, length < ScopedUnlock::kMuch ? 0 : 1);
    EXPECT_EQ(self.link.free + self.link.held, 1);
    self.calls.await_none(self.lock);  // returns at once
  }
}

TEST(ScopedUnlock, ASenderThatWasClearedMeanwhileStaysCleared) {
  Unlocking self;
  const std::vector<std::byte> bytes(kLong);
  Operation send;
  send.pieces = {bytes};
  send.length = kLong;
  DataSender sender(self.link);
  sender.post(send);
  self.link.meanwhile = [&] { sender.clear(); };
  EXPECT_EQ(sender.step(self.scoped_unlock()).kind, Kind::kIdle);
  EXPECT_EQ(self.link.free, 1);
  EXPECT_TRUE(!send.done && sender.empty());
}

TEST(ScopedUnlock, AReceiverThatWasClearedMeanwhileStaysCleared) {
  Unlocking self;
  const MessageHeaderBytes header = encode_message_header({1, kLong});
  self.link.played.assign(header.begin(), header.end());
  DataReceiver receiver(1, self.link, self.blocks, kForEver);
  Receive receive(1, kLong);
  (void)receiver.post(receive.operation);
  self.link.meanwhile = [&] { receiver.clear(); };
  for (int i = 0; i < 2; ++i) EXPECT_EQ(receiver.step(self.scoped_unlock()).kind, Kind::kIdle);
  EXPECT_EQ(self.link.free, 1);
  EXPECT_FALSE(receive.operation.done);
}

// Another thread may claim it at any time, with its memory.
TEST(ScopedUnlock, AnUnexpectedMessageIsReceivedUnderTheLock) {
  Unlocking self;
  const MessageHeaderBytes header = encode_message_header({1, kLong});
  self.link.played.assign(header.begin(), header.end());
  DataReceiver receiver(1, self.link, self.blocks, std::chrono::milliseconds(0));
  for (int i = 0; i < 2; ++i) EXPECT_NE(receiver.step(self.scoped_unlock()).kind, Kind::kFailed);
  EXPECT_GT(self.link.held, 0);
  EXPECT_EQ(self.link.free, 0);
}

// A small rest of a step's budget is not worth another call.
TEST(DataSender, AStepEndsWhenLittleOfItsBudgetIsLeft) {
  PlaybackLink link;
  link.at_once = kStepBytes - 200;
  const std::vector<std::byte> bytes(2 * kStepBytes);
  Operation send;
  send.pieces = {bytes};
  send.length = bytes.size();
  DataSender sender(link);
  sender.post(send);
  EXPECT_EQ(sender.step().kind, Kind::kMoved);
  EXPECT_EQ(link.sent.size(), link.at_once);
}

}  // namespace
}  // namespace deltawire::long_messages_test
