// The messages of a bucket on a transport without a network: what is posted, counted, and released when.
#include <algorithm>
#include <array>
#include <memory>
#include <set>

#include <gtest/gtest.h>

#include "reduce/bucket_run.h"
#include "reduce/scripted_transport_testing.h"

namespace deltawire::bucket_messages_test {
namespace {

class BucketMessagesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    run.open({.number = 1, .bucket = 2}, transport, Clock::now() + std::chrono::seconds(1), 0);
    messages.open(8);
  }
  std::vector<int> peers() const {
    std::vector<int> found;
    for (const auto& each : transport.posted) found.push_back(each.peer);
    return found;
  }

  std::shared_ptr<MemoryMeter> meter = std::make_shared<MemoryMeter>();
  BufferPool pool{meter, MemoryMeter::Use::kStaging};
  ScriptedTransport transport{1, 4};
  BucketRun run;
  BucketMessages messages{pool, run};
};

TEST_F(BucketMessagesTest, AReceiveGetsItsMessageInItsOwnMemory) {
  Incoming& receive = messages.incoming(3);
  messages.post(receive, 2, kSecondStage, 100);
  const auto& posted = transport.posted.at(0);
  EXPECT_EQ(posted.peer, 2);
  EXPECT_EQ(posted.tag, run.tag(kSecondStage));
  EXPECT_EQ(posted.room.size(), 100u);
  EXPECT_EQ(posted.room.data(), receive.buffer.bytes().data());
  EXPECT_EQ(messages.incoming_handle(3), receive.handle);
  EXPECT_FALSE(messages.arrived(receive));
  const std::array<std::byte, 2> bytes{std::byte{4}, std::byte{5}};
  transport.deliver(receive.handle, bytes);
  EXPECT_TRUE(messages.arrived(receive));
  const Result<Bytes> message = messages.take(receive);
  ASSERT_TRUE(message);
  EXPECT_EQ(std::vector(message->begin(), message->end()), std::vector(bytes.begin(), bytes.end()));
  EXPECT_EQ(receive.handle, Handle::kNone);
}

TEST_F(BucketMessagesTest, ReferencesToReceivesStayValid) {
  const Incoming* first = &messages.incoming(0);
  messages.incoming(500);
  EXPECT_EQ(&messages.incoming(0), first);
}

TEST_F(BucketMessagesTest, SendsStartWithTheNextRankAndCountEachCopy) {
  const std::vector<std::byte> bytes(10);
  const std::vector<Bytes> pieces{Bytes(bytes).first(6), Bytes(bytes).subspan(6)};
  messages.send_to_all(kFirstStage, pieces);
  EXPECT_EQ(peers(), (std::vector<int>{2, 3, 0}));
  EXPECT_EQ(transport.posted[0].sent.size(), 10u);
  EXPECT_EQ(run.report().bytes_sent, 30u);
}

// A channel encodes two messages; the second encode reuses the memory of the first only when that is
// released.
TEST_F(BucketMessagesTest, AMessageIsReleasedWhenItsLastCopyIsSent) {
  const auto channel = make_channel("fp32");
  ASSERT_TRUE(channel);
  std::vector<float> values(20000, 1.0F);
  const Named part{"w", {values.data(), values.size(), DType::kF32}};
  const auto encode = [&] { return *run.encode(**channel, std::span(&part, 1), kFirstStage, 100000); };
  const std::span<const Bytes> first = encode();
  std::set<const std::byte*> memory;
  for (const Bytes piece : first) memory.insert(piece.data());
  messages.send_to_all(kFirstStage, first, channel->get());
  for (const std::size_t copy : {0U, 1U}) transport.posted[copy].is_done = true;
  messages.release_sent();
  EXPECT_FALSE(transport.posted[0].is_waited_for) << "a copy is still being sent";
  transport.posted[2].is_done = true;
  messages.release_sent();
  for (const auto& each : transport.posted) EXPECT_TRUE(each.is_waited_for);
  const auto next = encode();
  EXPECT_TRUE(std::ranges::any_of(next, [&](Bytes piece) { return memory.contains(piece.data()); }))
      << "its memory serves the next message";
}

TEST_F(BucketMessagesTest, AMessageWithoutAChannelStays) {
  const std::vector<std::byte> bytes(10);
  const Bytes piece(bytes);
  messages.send(0, kFirstStage, std::span(&piece, 1));
  transport.posted[0].is_done = true;
  messages.release_sent();
  EXPECT_FALSE(transport.posted[0].is_waited_for);
  messages.drain();
  EXPECT_TRUE(transport.posted[0].is_waited_for);
}

TEST_F(BucketMessagesTest, DrainingWaitsForEverythingOnce) {
  messages.post(messages.incoming(0), 0, kFirstStage, 8);
  messages.incoming(1);  // not posted
  messages.post(messages.incoming(2), 3, kFirstStage, 8);
  messages.drain();
  EXPECT_TRUE(transport.posted[0].is_waited_for);
  EXPECT_TRUE(transport.posted[1].is_waited_for);
  transport.posted[0].is_waited_for = false;
  messages.drain();
  EXPECT_FALSE(transport.posted[0].is_waited_for);
}

TEST_F(BucketMessagesTest, MemoryGoesBackToThePool) {
  messages.post(messages.incoming(0), 0, kFirstStage, 64);
  const std::byte* memory = transport.posted[0].room.data();
  messages.give_back();
  EXPECT_EQ(pool.take(64).bytes().data(), memory);
}

}  // namespace
}  // namespace deltawire::bucket_messages_test
