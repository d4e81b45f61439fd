// How members at a meeting bring their residuals together.
#include <future>

#include <gtest/gtest.h>

#include "elastic/meeting_context.h"
#include "transport/mesh_testing.h"

namespace deltawire::elastic::residual_shares_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kEpoch = 5;

std::vector<std::byte> bytes_of(std::size_t count, unsigned seed) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * seed + i / 251);
  return bytes;
}

const ResidualShares kShares{{0, bytes_of(11, 3)}, {1, bytes_of(100'000, 5)}, {2, {}}};

// Lines between the host and members.
class ResidualSharesTest : public ::testing::Test {
 protected:
  ResidualSharesTest() : door_(*open_door(*listen_tcp("127.0.0.1"), options_)) {}

  // The member's end; the host's is in peers_.
  std::shared_ptr<PeerLine> member(int id) {
    auto call = std::async(std::launch::async,
                           [&] { return call_at_door(door_->endpoint(), options_, test::soon()); });
    auto line = door_->answer(test::soon());
    peers_[id] = std::make_shared<PendingPeer>(std::make_shared<PeerLine>(*std::move(line)), Message(Meet{}));
    return std::make_shared<PeerLine>(*call.get());
  }
  // What a member does at a host.
  ResidualShares attend(int id, PeerLine& line) {
    EXPECT_TRUE(std::holds_alternative<AskShare>(*line.hear_within(10s, never_)));
    EXPECT_TRUE(line.send_bytes(kShares.at(id), 10s, never_));
    const auto first = line.hear_within(10s, never_);
    EXPECT_EQ(std::get<Shares>(*first).epoch, kEpoch);
    return *receive_shares(line, std::get<Shares>(*first), never_);
  }

  const DoorOptions options_{.token = test::token_of(7)};
  std::unique_ptr<Door> door_;
  PeersByKey peers_;
  Ending never_;
};

TEST_F(ResidualSharesTest, EverybodyGetsWhatTheOthersOwe) {
  std::map<int, std::future<ResidualShares>> got;
  for (const int id : {1, 2}) {
    got[id] = std::async(std::launch::async, [this, id, line = member(id)] { return attend(id, *line); });
  }
  auto [shares, lost] = collect_shares(peers_, never_);
  EXPECT_TRUE(lost.empty());
  EXPECT_EQ(shares, (ResidualShares{{1, kShares.at(1)}, {2, kShares.at(2)}}));
  shares[0] = kShares.at(0);
  EXPECT_TRUE(spread_shares(kEpoch, shares, peers_, 10s, never_).empty());
  for (const int id : {1, 2}) {
    ResidualShares others = kShares;
    others.erase(id);
    EXPECT_EQ(got[id].get(), others);
  }
}

TEST_F(ResidualSharesTest, WhoeverHangsUpHasNoShareAndHoldsUpNobody) {
  auto got = std::async(std::launch::async, [this, line = member(1)] { return attend(1, *line); });
  (void)member(2);  // it hangs up
  auto [shares, lost] = collect_shares(peers_, never_);
  EXPECT_EQ(shares, (ResidualShares{{1, kShares.at(1)}}));
  EXPECT_EQ(lost.size(), 1U);
  EXPECT_TRUE(lost.contains(2));
  shares[0] = {};
  EXPECT_TRUE(spread_shares(kEpoch, shares, peers_, 10s, never_).contains(2));
  EXPECT_EQ(got.get(), (ResidualShares{{0, {}}}));
}

TEST_F(ResidualSharesTest, WhoeverSaysSomethingElseIsLost) {
  const auto line = member(1);
  ASSERT_TRUE(line->say(Ready{}));
  const Failures lost = spread_shares(kEpoch, {}, peers_, 10s, never_);
  ASSERT_TRUE(lost.contains(1));
  EXPECT_EQ(lost.at(1).code, ErrorCode::kCorrupt);
}

TEST_F(ResidualSharesTest, BytesWithAnotherDigestAreRefused) {
  const auto line = member(1);
  ASSERT_TRUE(line->say(BytesHead{3, Digest{}}));
  auto got = std::async(std::launch::async, [&] { return peers_.at(1)->line->receive_bytes(5s, never_, 2); });
  EXPECT_EQ(got.get().error().code, ErrorCode::kCorrupt) << "more than may come";
}

// Who waits is told so by the line itself, and nothing comes between the messages of who is busy with it.
TEST_F(ResidualSharesTest, AKeptLineRepeatsItsMessage) {
  const auto line = member(1);
  PeerLine& host = *peers_.at(1)->line;
  host.keep(Wait{true});
  host.tell(Clock::now());
  host.tell(Clock::now());  // not again so soon
  {
    const Busy busy(host);
    host.tell(Clock::now() + 10s);
    ASSERT_TRUE(host.say(Again{}));
  }
  host.tell(Clock::now());
  EXPECT_TRUE(*line->hear_within(5s, never_) == Message(Wait{true}));
  EXPECT_TRUE(*line->hear_within(5s, never_) == Message(Again{}));
  EXPECT_TRUE(*line->hear_within(5s, never_) == Message(Wait{true}));
}

}  // namespace
}  // namespace deltawire::elastic::residual_shares_test
