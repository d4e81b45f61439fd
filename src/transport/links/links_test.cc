// Links that are slow or broken on purpose.
#include <cmath>

#include "base/refusal_testing.h"
#include "transport/links/connection.h"
#include "transport/links/shaped_link.h"
#include "transport/mesh_testing.h"

namespace deltawire::test::links_test {
namespace {

using Kind = LinkFault::Kind;

class Links : public ::testing::TestWithParam<MeshKind> {
 protected:
  // Two ranks; rank 0's stream to rank 1 has the defect.
  Ranks with_fault(Kind kind, std::uint64_t at_byte, std::chrono::milliseconds delay = 0ms) {
    return connect_ranks(GetParam(), 2, {{{}, faulty({kind, 1, at_byte, delay})}, {}});
  }
};
INSTANTIATE_TEST_SUITE_P(Meshes, Links,
                         ::testing::Values(MeshKind::kInproc, MeshKind::kTcp, MeshKind::kTls,
                                           MeshKind::kStriped, MeshKind::kCarried),
                         mesh_kind_name);

double seconds_since(Deadline start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST_P(Links, AShapedLineIsAsSlowAsItsShapeInEitherDirection) {
  const LinkOptions slow{LinkShape{10e6, 16384}, {}};
  for (const std::vector<LinkOptions>& links :
       {std::vector<LinkOptions>{slow, {}}, std::vector<LinkOptions>{{}, slow}}) {
    Ranks ranks = connect_ranks(GetParam(), 2, links);
    const std::vector<std::byte> bytes = pattern(1000000, 2);
    std::vector<std::byte> got(bytes.size());
    const Deadline start = Clock::now();
    const Handle receive = ranks[1]->post_recv(0, 1, got);
    send_and_forget(*ranks[0], 1, 1, bytes);
    ASSERT_TRUE(ranks[1]->wait(receive, soon()).has_value());
    EXPECT_GE(seconds_since(start), 0.09);
    EXPECT_TRUE(same_bytes(got, bytes));
  }
}

TEST_P(Links, AllPeersShareOneLine) {
  const LinkOptions slow{LinkShape{10e6, 16384}, {}};
  Ranks ranks = connect_ranks(GetParam(), 3, {slow, {}, {}});
  const std::vector<std::byte> bytes = pattern(500000, 2);
  const Deadline start = Clock::now();
  run_ranks(3, [&](int rank) {
    Transport& self = *ranks[static_cast<std::size_t>(rank)];
    std::vector<std::byte> got(bytes.size());
    if (rank == 0) {
      send_and_forget(self, 1, 1, bytes);
      EXPECT_TRUE(self.wait(send_bytes(self, 2, 1, bytes), soon()).has_value());
    } else {
      EXPECT_TRUE(self.wait(self.post_recv(0, 1, got), soon()).has_value());
      EXPECT_TRUE(same_bytes(got, bytes));
    }
  });
  EXPECT_GE(seconds_since(start), 0.09);
}

TEST_P(Links, ATinyBurstStillMoves) {
  const LinkOptions slow{LinkShape{20000, 1}, {}};
  Ranks ranks = connect_ranks(GetParam(), 2, {slow, {}});
  const std::vector<std::byte> bytes = pattern(500, 2);
  std::vector<std::byte> got(bytes.size());
  send_and_forget(*ranks[0], 1, 1, bytes);
  ASSERT_TRUE(ranks[1]->wait(ranks[1]->post_recv(0, 1, got), soon()).has_value());
  EXPECT_TRUE(same_bytes(got, bytes));
}

TEST_P(Links, DelayHoldsEveryMessageBackButNotOneAfterTheOther) {
  Ranks ranks = with_fault(Kind::kDelay, 0, 300ms);
  const Deadline start = Clock::now();
  const std::vector<std::byte> bytes = pattern(10000, 2);
  for (Tag tag = 0; tag < 100; ++tag) send_and_forget(*ranks[0], 1, tag, bytes);
  for (Tag tag = 0; tag < 100; ++tag) {
    std::vector<std::byte> got(bytes.size());
    ASSERT_TRUE(ranks[1]->wait(ranks[1]->post_recv(0, tag, got), soon()).has_value());
    EXPECT_TRUE(same_bytes(got, bytes));
  }
  EXPECT_GE(seconds_since(start), 0.29);
  EXPECT_LT(seconds_since(start), 25) << "one after the other they take 30 s";
}

TEST_P(Links, DelayedBytesSurviveTheirSendersDeparture) {
  Ranks ranks = with_fault(Kind::kDelay, 0, 200ms);
  const std::vector<std::byte> bytes = pattern(10000, 2);
  send_and_forget(*ranks[0], 1, 1, bytes);
  ranks[0].reset();
  std::vector<std::byte> got(bytes.size());
  EXPECT_TRUE(ranks[1]->wait(ranks[1]->post_recv(0, 1, got), soon()).has_value());
  EXPECT_TRUE(same_bytes(got, bytes));
}

TEST_P(Links, CutIsNoticedOnBothSides) {
  for (const std::uint64_t at : {0u, 10u, 32u, 5000u}) {
    Ranks ranks = with_fault(Kind::kCut, at);
    const std::vector<std::byte> bytes = pattern(10000, 2);
    send_and_forget(*ranks[0], 1, 1, bytes);
    for (const std::size_t rank : {0u, 1u}) {
      std::vector<std::byte> got(bytes.size());
      const auto result =
          ranks[rank]->wait(ranks[rank]->post_recv(static_cast<int>(1 - rank), 1, got), soon());
      testing::expect_refused(result, ErrorCode::kPeerLost);
      EXPECT_NE(result.error().suspect, kNoSuspect);
    }
  }
}

TEST_P(Links, FlipInvertsOneBitOfThePayload) {
  Ranks ranks = with_fault(Kind::kFlip, 32 + 5003);
  const std::vector<std::byte> bytes = pattern(10000, 2);
  std::vector<std::byte> got(bytes.size());
  send_and_forget(*ranks[0], 1, 1, bytes);
  ASSERT_TRUE(ranks[1]->wait(ranks[1]->post_recv(0, 1, got), soon()).has_value());
  std::vector<std::byte> expected = bytes;
  expected[5003] ^= std::byte{1} << ((32 + 5003) % 8);
  EXPECT_TRUE(got == expected);
}

TEST_P(Links, AFlippedHeaderIsCorruptAndNamesTheSender) {
  for (std::uint64_t at = 0; at < 32; ++at) {
    Ranks ranks = with_fault(Kind::kFlip, at);
    const std::vector<std::byte> bytes = pattern(100, 2);
    std::vector<std::byte> got(bytes.size());
    send_and_forget(*ranks[0], 1, 1, bytes);
    testing::expect_refused(ranks[1]->wait(ranks[1]->post_recv(0, 1, got), soon()), ErrorCode::kCorrupt, 0);
  }
}

TEST_P(Links, DropEndsAtTheDeadline) {
  Ranks ranks = with_fault(Kind::kDrop, 5000);
  const std::vector<std::byte> bytes = pattern(10000, 2);
  EXPECT_TRUE(ranks[0]->wait(send_bytes(*ranks[0], 1, 1, bytes), soon()).has_value());
  std::vector<std::byte> got(bytes.size());
  testing::expect_refused(ranks[1]->wait(ranks[1]->post_recv(0, 1, got), in(2s)), ErrorCode::kTimeout, 0);
}

TEST_P(Links, DribbleIsSlowButWhole) {
  Ranks ranks = with_fault(Kind::kDribble, 10000, 2ms);
  const std::vector<std::byte> bytes = pattern(10016, 2);
  std::vector<std::byte> got(bytes.size());
  const Deadline start = Clock::now();
  send_and_forget(*ranks[0], 1, 1, bytes);
  ASSERT_TRUE(ranks[1]->wait(ranks[1]->post_recv(0, 1, got), soon()).has_value());
  EXPECT_GE(seconds_since(start), 0.09);  // 48 bytes, 2 ms apart
  EXPECT_TRUE(same_bytes(got, bytes));
}

// On a simulated clock: 1000 bytes a second, a burst of at most 8000.
TEST(TokenBucket, SavesNoMoreThanItsBurstAndGrantsNoTinyAmounts) {
  const Deadline start{};
  TokenBucket bucket(LinkShape{1000, 8000}, start);
  EXPECT_EQ(bucket.grant(100000, start), 8000u);
  EXPECT_EQ(bucket.grant(100000, start + 3600s), 8000u);
  EXPECT_EQ(bucket.grant(50, start + 3600s), 50u);
  bucket.spend(8000);
  struct Row {
    std::chrono::seconds later;
    std::size_t wanted;
    std::size_t granted;
  };
  for (const Row& row : {Row{0s, 1, 0}, Row{1s, 1001, 0}, Row{1s, 1000, 1000}, Row{4s, 100000, 0},
                         Row{5s, 100000, 5000}, Row{8s, 8000, 8000}, Row{9s, 9000, 8000}}) {
    const Deadline now = start + 3600s + row.later;
    EXPECT_EQ(bucket.grant(row.wanted, now), row.granted) << row.later.count() << " " << row.wanted;
    if (row.granted > 0) continue;
    EXPECT_GT(bucket.next_grant(row.wanted, now), now);
    TokenBucket then = bucket;
    EXPECT_GT(then.grant(row.wanted, then.next_grant(row.wanted, now)), 0u);
  }
}

// A closed peer is kClosed, however the kernel reports it.
TEST(SocketLink, AnEndIsClosedAndNeitherAnErrorNorAWait) {
  std::vector<std::byte> bytes(10);
  const iovec piece{bytes.data(), bytes.size()};
  for (const bool unread : {false, true}) {
    auto ends = GuardedFd::open_socket_pair();
    ASSERT_TRUE(ends[0]);
    SocketLink link(std::move(ends[0]));
    EXPECT_EQ(link.recv(bytes).kind, IoResult::Kind::kWouldBlock);
    if (unread) {
      EXPECT_EQ(link.send({&piece, 1}).bytes, bytes.size());
    }
    ends[1].reset();
    // With unread bytes the end is a reset: ECONNRESET, once; otherwise the stream just ends.
    EXPECT_EQ(link.recv(bytes).kind, IoResult::Kind::kClosed) << unread;
    EXPECT_EQ(link.recv(bytes).kind, IoResult::Kind::kClosed) << unread;
    EXPECT_EQ(link.send({&piece, 1}).kind, IoResult::Kind::kClosed) << unread;  // EPIPE
  }
}

TEST(LinkOptionsCheck, NonsenseIsRefused) {
  const auto code = [](LinkOptions options) {
    const auto ranks = connect_inproc(2, {std::move(options), {}});
    return ranks ? ErrorCode::kState : ranks.error().code;
  };
  EXPECT_EQ(code({LinkShape{0, 1}, {}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({LinkShape{std::nan(""), 1}, {}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({LinkShape{1, 0}, {}}), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code({LinkShape{1, 16385}, {}}), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(connect_inproc(0).has_value());
  EXPECT_FALSE(connect_inproc(3, {{}, {}}).has_value());
}

}  // namespace
}  // namespace deltawire::test::links_test
