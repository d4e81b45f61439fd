// Messages that arrive: sizes, tags, orders, unexpected ones, many at once.
#include <algorithm>
#include <random>

#include "base/brief_testing.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::exchange_test {
namespace {

class Exchange : public ::testing::TestWithParam<MeshKind> {};
INSTANTIATE_TEST_SUITE_P(Meshes, Exchange, ::testing::ValuesIn(tested_meshes()), mesh_kind_name);

constexpr std::size_t kLengths[] = {0, 1, 31, 32, 33, 4096, 16352, 16384, 70000, 300000, 1200000};

TEST_P(Exchange, RandomMessagesArriveWholeAndInOrder) {
  for (const int world_size : {2, 3, 4}) {
    std::mt19937_64 random(static_cast<std::uint64_t>(world_size) * 77);
    Ranks ranks = connect_ranks(GetParam(), world_size);
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(world_size));
    for (int round = 0; round < testing::whole_or_brief(3, 1); ++round) {
      const std::vector<Planned> plan = plan_messages(world_size, kLengths, 30, random);
      run_ranks(world_size, [&](int rank) {
        play(*ranks[static_cast<std::size_t>(rank)], plan, static_cast<std::uint64_t>(rank * 100 + round));
      });
    }
  }
}

TEST_P(Exchange, PiecesBecomeOneMessage) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  const std::vector<std::byte> whole = pattern(100000, 5);
  std::vector<Bytes> pieces;
  for (std::size_t at = 0, i = 0; at < whole.size(); ++i) {
    const std::size_t length = std::min(whole.size() - at, i * i % 97 * 13);  // some of them empty
    pieces.push_back(Bytes(whole).subspan(at, length));
    at += length;
  }
  const Handle sent = ranks[0]->post_send(1, 9, pieces);
  std::vector<std::byte> got(whole.size() + 10);
  EXPECT_EQ(ranks[1]->wait(ranks[1]->post_recv(0, 9, got), soon()).value(), whole.size());
  EXPECT_EQ(ranks[0]->wait(sent, soon()).value(), whole.size());
  got.resize(whole.size());
  EXPECT_TRUE(got == whole);
}

TEST_P(Exchange, UnexpectedMessagesWaitForTheirReceives) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  constexpr std::uint64_t kMessages = 50;
  std::vector<std::vector<std::byte>> sent;
  std::vector<Handle> handles;
  for (std::uint64_t i = 0; i < kMessages; ++i) sent.push_back(pattern(20000 + i, i));
  for (std::uint64_t i = 0; i < kMessages; ++i) handles.push_back(send_bytes(*ranks[0], 1, i, sent[i]));
  // No receive is posted, but all sends complete.
  for (const Handle handle : handles) ASSERT_TRUE(ranks[0]->wait(handle, soon()).has_value());
  for (std::uint64_t i = kMessages; i-- > 0;) {
    std::vector<std::byte> got(30000);
    const auto length = ranks[1]->wait(ranks[1]->post_recv(0, i, got), soon());
    ASSERT_TRUE(length.has_value()) << length.error().message;
    got.resize(*length);
    EXPECT_TRUE(got == sent[i]);
  }
}

TEST_P(Exchange, BeyondTheirRoomTheSenderIsHeldBackButNothingIsLost) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  constexpr std::uint64_t kMessages = 300;
  const std::vector<std::byte> bytes = pattern(100000, 3);
  std::vector<Handle> handles;
  for (std::uint64_t i = 0; i < kMessages; ++i) handles.push_back(send_bytes(*ranks[0], 1, i, bytes));
  for (std::uint64_t i = 0; i < kMessages; ++i) {
    std::vector<std::byte> got(bytes.size());
    ASSERT_TRUE(ranks[1]->wait(ranks[1]->post_recv(0, i, got), soon()).has_value());
    EXPECT_TRUE(same_bytes(got, bytes));
  }
  for (const Handle handle : handles) EXPECT_TRUE(ranks[0]->wait(handle, soon()).has_value());
}

TEST_P(Exchange, AReceivePostedInTheMiddleOfItsMessageGetsIt) {
  // Slow enough that the receive is posted while the message is in flight.
  const std::vector<LinkOptions> links{{LinkShape{4e6, 16384}, {}}, {}};
  Ranks ranks = connect_ranks(GetParam(), 2, links);
  const std::vector<std::byte> bytes = pattern(1000000, 11);
  const Handle sent = send_bytes(*ranks[0], 1, 1, bytes);
  while (ranks[1]->traffic().bytes_received < 200000) std::this_thread::sleep_for(1ms);
  std::vector<std::byte> got(bytes.size());
  EXPECT_EQ(ranks[1]->wait(ranks[1]->post_recv(0, 1, got), soon()).value(), bytes.size());
  EXPECT_TRUE(same_bytes(got, bytes));
  EXPECT_TRUE(ranks[0]->wait(sent, soon()).has_value());
}

TEST_P(Exchange, TrafficCountsPayloadHeadersAndVotes) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  const std::vector<std::byte> bytes = pattern(1000, 1);
  std::vector<std::byte> got(1000);
  const Handle sent = send_bytes(*ranks[0], 1, 1, bytes);
  ASSERT_TRUE(ranks[1]->wait(ranks[1]->post_recv(0, 1, got), soon()).has_value());
  ASSERT_TRUE(ranks[0]->wait(sent, soon()).has_value());
  EXPECT_EQ(ranks[0]->traffic().bytes_sent, 1032u);
  EXPECT_EQ(ranks[1]->traffic().bytes_received, 1032u);
  EXPECT_EQ(ranks[1]->traffic().bytes_sent, 0u);
  run_ranks(2, [&](int rank) {
    EXPECT_TRUE(ranks[static_cast<std::size_t>(rank)]->vote({1, 1}, soon()).has_value());
  });
  EXPECT_EQ(ranks[1]->traffic().bytes_sent, 36u);
  EXPECT_EQ(ranks[0]->traffic().bytes_received, 36u);
}

TEST_P(Exchange, ManyThreadsMayUseOneTransport) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  run_ranks(8, [&](int thread) {
    const auto tag = static_cast<Tag>(thread / 2);
    Transport& self = *ranks[static_cast<std::size_t>(thread % 2)];
    const int peer = 1 - self.rank();
    for (std::uint64_t i = 0; i < 50; ++i) {
      const auto bytes = pattern(i * 317, tag * 1000 + i);
      std::vector<std::byte> got(bytes.size());
      const Handle receive = self.post_recv(peer, tag, got);
      const Handle send = send_bytes(self, peer, tag, bytes);
      ASSERT_TRUE(self.wait(receive, soon()).has_value());
      ASSERT_TRUE(self.wait(send, soon()).has_value());
      EXPECT_TRUE(same_bytes(got, bytes));
    }
  });
}

TEST_P(Exchange, LastMessagesArriveThoughTheirSenderLeavesAtOnce) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  const std::vector<std::byte> bytes = pattern(3000000, 8);
  send_and_forget(*ranks[0], 1, 1, bytes);
  send_and_forget(*ranks[0], 1, 2, bytes);
  std::thread leaver([&] { ranks[0].reset(); });
  std::vector<std::byte> got(bytes.size());
  for (const Tag tag : {Tag{2}, Tag{1}}) {
    const auto length = ranks[1]->wait(ranks[1]->post_recv(0, tag, got), soon());
    EXPECT_TRUE(length.has_value()) << length.error().message;
    EXPECT_TRUE(same_bytes(got, bytes));
  }
  leaver.join();
}

TEST_P(Exchange, AMeshThatIsNeverUsedComesAndGoes) {
  for (const int world_size : {1, 2, 4}) {
    Ranks ranks = connect_ranks(GetParam(), world_size);
    ASSERT_EQ(ranks.size(), static_cast<std::size_t>(world_size));
    EXPECT_EQ(ranks.back()->world_size(), world_size);
    EXPECT_EQ(ranks.back()->rank(), world_size - 1);
    EXPECT_EQ(ranks.back()->wait(Handle::kNone, soon()).value(), 0u);
  }
}

TEST_P(Exchange, WaitingTwiceIsAnErrorOfThisCallOnly) {
  Ranks ranks = connect_ranks(GetParam(), 2);
  const std::vector<std::byte> bytes = pattern(10, 1);
  const Handle sent = send_bytes(*ranks[0], 1, 1, bytes);
  EXPECT_TRUE(ranks[0]->wait(sent, soon()).has_value());
  EXPECT_EQ(ranks[0]->wait(sent, soon()).error().code, ErrorCode::kState);
  std::vector<std::byte> got(10);
  EXPECT_TRUE(ranks[1]->wait(ranks[1]->post_recv(0, 1, got), soon()).has_value());
}

}  // namespace
}  // namespace deltawire::test::exchange_test
