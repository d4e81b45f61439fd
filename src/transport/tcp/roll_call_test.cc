// Unit tests of RollCall: when a rank's bootstrap ends, and for whom it waits.
#include "transport/tcp/roll_call.h"

#include <algorithm>
#include <array>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "base/refusal_testing.h"

namespace deltawire::roll_call_test {
namespace {

using Shares = RollCall::Shares;

// Rank 0 of three, and the other ends of its data streams.
struct Rank {
  std::vector<PeerSockets> sockets = std::vector<PeerSockets>(3);
  std::vector<std::uint32_t> streams = std::vector<std::uint32_t>(3);
  std::array<GuardedFd, 3> others;
  RollCall call{0, 3};

  Rank() {
    meet(1);
    meet(2);
  }
  void meet(std::size_t rank) {
    auto ends = GuardedFd::open_socket_pair();
    sockets[rank].data = std::move(ends[0]);
    others[rank] = std::move(ends[1]);
    ++streams[rank];
  }
  void hear(std::size_t rank, std::string_view bytes) const {
    EXPECT_EQ(::send(others[rank].get(), bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  }
  std::string said_to(std::size_t rank) const {
    std::array<char, 10> bytes;
    const ssize_t got = ::recv(others[rank].get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
  }
};

TEST(RollCall, ItLeavesWhenAllHaveMetAll) {
  Rank rank;
  EXPECT_FALSE(rank.call.is_complete());
  ASSERT_TRUE(rank.call.advance(rank.sockets, rank.streams));
  EXPECT_EQ(rank.call.silent_rank(), 1);
  EXPECT_EQ(rank.said_to(1), "H");
  EXPECT_EQ(rank.said_to(2), "H");
  rank.hear(1, "Hmesh");
  ASSERT_TRUE(rank.call.advance(rank.sockets, rank.streams));
  EXPECT_EQ(rank.call.silent_rank(), 2);
  std::vector<pollfd> polls;
  rank.call.add_interests(rank.sockets, polls);
  ASSERT_EQ(polls.size(), 1u);
  EXPECT_EQ(polls[0].fd, rank.sockets[2].data.get());
  EXPECT_EQ(polls[0].events, POLLIN);
  rank.hear(2, "H");
  ASSERT_TRUE(rank.call.advance(rank.sockets, rank.streams));
  EXPECT_TRUE(rank.call.is_complete());
  std::array<char, 10> rest;
  EXPECT_EQ(::recv(rank.sockets[1].data.get(), rest.data(), rest.size(), MSG_DONTWAIT), 4) << "the mesh's";
}

TEST(RollCall, WhoComesAgainSaysAndHearsItAgain) {
  Rank rank;
  rank.hear(1, "H");
  ASSERT_TRUE(rank.call.advance(rank.sockets, rank.streams));
  rank.meet(1);
  rank.hear(2, "H");
  ASSERT_TRUE(rank.call.advance(rank.sockets, rank.streams));
  EXPECT_EQ(rank.call.silent_rank(), 1);
  EXPECT_EQ(rank.said_to(1), "H");
}

TEST(RollCall, AnythingElseIsCorruptAndNamesTheRank) {
  Rank rank;
  rank.hear(2, "x");
  testing::expect_refused(rank.call.advance(rank.sockets, rank.streams), ErrorCode::kCorrupt, 2);
}

// Two ranks on both ends of a Unix socket, which may share memory or not, as those of older versions.
struct TwoRanks {
  TwoRanks(Shares lower_shares, Shares higher_shares)
      : lower{.call = {0, 2, lower_shares}}, higher{.call = {1, 2, higher_shares}} {
    auto ends = GuardedFd::open_socket_pair();
    lower.sockets[1].data = std::move(ends[0]);
    higher.sockets[0].data = std::move(ends[1]);
    lower.streams[1] = higher.streams[0] = 1;
  }
  struct End {
    std::vector<PeerSockets> sockets = std::vector<PeerSockets>(2);
    std::vector<std::uint32_t> streams = std::vector<std::uint32_t>(2);
    RollCall call;
    // Whether its data stream is through shared memory afterwards.
    bool shares() {
      EXPECT_TRUE(call.is_complete());
      call.share_memory(sockets);
      const auto link = sockets[sockets[0].data ? 0 : 1].data.take_link();
      return dynamic_cast<SharedLink*>(link.get()) != nullptr;
    }
  };
  void advance() {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(lower.call.advance(lower.sockets, lower.streams));
      ASSERT_TRUE(higher.call.advance(higher.sockets, higher.streams));
    }
  }
  End lower;
  End higher;
};

TEST(RollCall, TwoThatWantItShareMemoryAndOthersTheirSocket) {
  for (const Shares lower_shares : {Shares::kAreasToo, Shares::kRings, Shares::kNothing}) {
    for (const Shares higher_shares : {Shares::kAreasToo, Shares::kRings, Shares::kNothing}) {
      TwoRanks ranks(lower_shares, higher_shares);
      ranks.advance();
      const bool lower_wants = lower_shares != Shares::kNothing;
      const bool higher_wants = higher_shares != Shares::kNothing;
      EXPECT_EQ(ranks.lower.shares(), lower_wants && higher_wants);
      EXPECT_EQ(ranks.higher.shares(), lower_wants && higher_wants);
      EXPECT_EQ(ranks.lower.call.describe_unshared().empty(), higher_wants || !lower_wants);
      EXPECT_EQ(ranks.higher.call.describe_unshared().empty(), lower_wants || !higher_wants);
    }
  }
}

// What a rank writes into its area the other reads; both give, or neither does.
TEST(RollCall, TwoThatWantItGiveEachOtherAnArea) {
  for (const Shares lower_shares : {Shares::kAreasToo, Shares::kRings}) {
    for (const Shares higher_shares : {Shares::kAreasToo, Shares::kRings}) {
      TwoRanks ranks(lower_shares, higher_shares);
      ranks.advance();
      const auto lower = ranks.lower.call.take_areas();
      const auto higher = ranks.higher.call.take_areas();
      if (lower_shares == Shares::kRings || higher_shares == Shares::kRings) {
        const auto gives = [](const auto& areas) { return areas != nullptr && areas->own(); };
        EXPECT_FALSE(gives(lower) || gives(higher));
        continue;
      }
      ASSERT_TRUE(lower != nullptr && higher != nullptr);
      const MutBytes up = lower->own().take(5000, OwnArea::Use::kNow);
      const MutBytes down = higher->own().take(7, OwnArea::Use::kNow);
      ASSERT_EQ(up.size(), 5000u);
      ASSERT_EQ(down.size(), 7u);
      up.back() = std::byte{17};
      down.back() = std::byte{18};
      EXPECT_EQ(higher->of(0).at(lower->own().place_of(up), 5000).back(), std::byte{17});
      EXPECT_EQ(lower->of(1).at(higher->own().place_of(down), 7).back(), std::byte{18});
    }
  }
}

TEST(RollCall, ALowerRankSharesOnlyWhatItWasOffered) {
  TwoRanks ranks(Shares::kRings, Shares::kNothing);
  const std::byte shared{'M'};
  ASSERT_EQ(ranks.lower.sockets[1].data.send(Bytes(&shared, 1)).bytes, 1u);
  testing::expect_refused(ranks.higher.call.advance(ranks.higher.sockets, ranks.higher.streams),
                          ErrorCode::kCorrupt, 0);
}

TEST(RollCall, OneRankAloneNeedsNobody) {
  EXPECT_TRUE(RollCall(0, 1).is_complete());
}

}  // namespace
}  // namespace deltawire::roll_call_test
