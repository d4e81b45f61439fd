// Unit tests of Streams: what a driver must poll for, and what happens when it is ready.
#include "transport/mesh/streams.h"

#include <array>

#include "transport/mesh/mesh_parts_testing.h"
#include "transport/message_testing.h"

namespace deltawire::test::streams_test {
namespace {

using namespace std::chrono_literals;
using Said = std::vector<ControlMessage>;

// Rank 0 of three.
class StreamsAlone : public ::testing::Test, protected MeshParts {
 protected:
  Deadline prepare() { return streams.prepare(entries_); }
  // Serves with all entries ready.
  void serve() {
    (void)prepare();
    for (pollfd& entry : entries_) entry.revents = entry.events;
    streams.serve(lock_, entries_);
  }
  const pollfd& entry(int rank, Streams::PollEntry which) const {
    return entries_[Streams::entries_for(rank) + which];
  }
  int polled(int rank, Streams::PollEntry which) const { return entry(rank, which).fd; }

  // The peer sends a message.
  void send_from(int rank, Tag tag, const std::vector<std::byte>& bytes) {
    links.data(rank).add(encode_message_header({tag, bytes.size()}));
    links.data(rank).add(bytes);
  }
  Operation& post_receive(int rank, Tag tag, std::vector<std::byte>& into) {
    Operation& posted = post(rank);
    posted.tag = tag;
    posted.capacity = into;
    streams.post_receive(lock_, peers[rank], posted);
    return posted;
  }
  Operation& post_send(int rank, Tag tag, const std::vector<std::byte>& bytes) {
    const Bytes piece(bytes);
    Operation& posted = operations.add({&piece, 1});
    posted.kind = Operation::Kind::kSend;
    posted.peer = rank;
    posted.tag = tag;
    posted.length = bytes.size();
    streams.post_send(lock_, peers[rank], posted);
    return posted;
  }

  Driver::Lock lock_{mutex};
  std::vector<pollfd> entries_ = std::vector<pollfd>(Streams::entries_for(3));
  std::vector<std::byte> got_ = std::vector<std::byte>(100);
};

TEST_F(StreamsAlone, NewsAndMessagesArePolledForAndNothingToSend) {
  EXPECT_EQ(prepare(), kNever);
  for (const int rank : {1, 2}) {
    EXPECT_EQ(polled(rank, Streams::kControlIn), MemoryLinks::control_fd(rank));
    EXPECT_EQ(polled(rank, Streams::kDataIn), MemoryLinks::data_fd(rank));
    EXPECT_EQ(polled(rank, Streams::kControlOut), -1);
    EXPECT_EQ(polled(rank, Streams::kDataOut), -1);
  }
  for (std::size_t i = 0; i < Streams::kPollEntries; ++i) EXPECT_EQ(entries_[i].fd, -1) << "this rank's own";
}

TEST_F(StreamsAlone, AMessageGoesWhereItWasPosted) {
  const auto bytes = pattern(100, 1);
  const Operation& receive = post_receive(1, 5, got_);
  serve();
  EXPECT_FALSE(receive.done);
  send_from(1, 5, bytes);
  serve();
  EXPECT_TRUE(receive.done);
  EXPECT_EQ(got_, bytes);
}

TEST_F(StreamsAlone, WhatCanBeSentGoesAtOnceAndTheRestWhenTheLinkIsReady) {
  const auto bytes = pattern(100, 1);
  links.data(1).at_once = kMessageHeaderBytes + 40;
  const Operation& small = post_send(1, 5, pattern(40, 1));
  EXPECT_TRUE(small.done);
  peers[1].sending = true;  // another thread is at it
  const Operation& posted = post_send(1, 5, bytes);
  EXPECT_FALSE(posted.done);
  EXPECT_TRUE(streams.is_midway());
  (void)prepare();
  EXPECT_EQ(polled(1, Streams::kDataOut), -1);
  EXPECT_TRUE(peers[1].is_left_out);
  peers[1].sending = false;
  (void)prepare();
  EXPECT_EQ(polled(1, Streams::kDataOut), MemoryLinks::data_fd(1));
  serve();
  EXPECT_TRUE(posted.done);
  EXPECT_FALSE(streams.is_midway());
}

TEST_F(StreamsAlone, APausedStreamIsNotPolledUntilAReceiveIsPosted) {
  for (std::size_t i = 0; i < UnexpectedMessages::kMessagesMax + 1; ++i) send_from(1, 5, {});
  links.data(1).at_once = 1 << 20;
  serve();
  EXPECT_TRUE(peers[1].receive_paused);
  (void)prepare();
  EXPECT_EQ(polled(1, Streams::kDataIn), -1);
  EXPECT_TRUE(post_receive(1, 5, got_).done);
  EXPECT_FALSE(peers[1].receive_paused);
  // There was room for the one that had to wait, at once.
  for (std::size_t i = 0; i < UnexpectedMessages::kMessagesMax; ++i) {
    EXPECT_TRUE(post_receive(1, 5, got_).done) << i;
  }
}

TEST_F(StreamsAlone, AfterAFailureNewsAloneIsPolledFor) {
  consensus.fail({ErrorCode::kAborted, "enough", 0}, 0);
  EXPECT_EQ(prepare(), consensus.settle_by());
  EXPECT_EQ(polled(1, Streams::kControlIn), MemoryLinks::control_fd(1));
  EXPECT_EQ(polled(1, Streams::kDataIn), -1);
}

TEST_F(StreamsAlone, AnUnreportedFailureIsReportedInTheNextRound) {
  consensus.fail_without_text(ErrorCode::kNoMemory);
  const Deadline wake_at = prepare();
  EXPECT_LE(wake_at, Clock::now() + AgreementProtocol::kMemoryPause);
  serve();
  EXPECT_FALSE(consensus.is_untold());
}

TEST_F(StreamsAlone, OfADepartedRankNothingIsPolledFor) {
  membership.set_optional(std::array{1});
  membership.drop(peers[1], {ErrorCode::kPeerLost, "gone", 1});
  EXPECT_EQ(prepare(), kNever);
  for (std::size_t i = 0; i < Streams::kPollEntries; ++i) {
    EXPECT_EQ(entries_[Streams::entries_for(1) + i].fd, -1);
  }
}

// Its control stream may explain why. Where the network was down, the farewell may come later than the end of
// the data stream by any time: only a peer that answers lives.
TEST_F(StreamsAlone, APeerWhoseDataStreamEndsHasTimeToExplainItself) {
  links.data(1).ended = true;
  const Deadline before = Clock::now();
  serve();
  EXPECT_FALSE(consensus.failed());
  EXPECT_GE(peers[1].verdict_at, before + 100ms);
  EXPECT_EQ(prepare(), peers[1].verdict_at);
  EXPECT_EQ(polled(1, Streams::kDataIn), -1) << "there is no more";
  EXPECT_EQ(links.said_to(1), Said{(Waiting{1, 0})});
  peers[1].verdict_at = Clock::now();
  serve();
  EXPECT_FALSE(consensus.failed());
  EXPECT_GT(peers[1].verdict_at, Clock::now());
  links.say(1, Here{0});
  serve();
  EXPECT_FALSE(consensus.failed());
  peers[1].verdict_at = Clock::now();
  serve();
  EXPECT_TRUE(says(consensus.failure(), "was cut while its control connection still stands"));
}

TEST_F(StreamsAlone, TheLastMessagesOfAPeerAreReadFirst) {
  links.data(1).ended = true;
  links.say(1, Goodbye{0});
  (void)prepare();
  pollfd& data_in = entries_[Streams::entries_for(1) + Streams::kDataIn];
  data_in.revents = data_in.events;
  streams.serve(lock_, entries_);
  EXPECT_TRUE(peers[1].said_goodbye);
  EXPECT_EQ(peers[1].verdict_at, kNever);
  EXPECT_FALSE(consensus.failed());
}

TEST_F(StreamsAlone, BytesThatBreakTheRulesAreBlamed) {
  links.data(1).add(100, std::byte{0xEE});
  serve();
  ASSERT_TRUE(consensus.failed());
  EXPECT_EQ(consensus.failure().suspect, 1);
  EXPECT_EQ(consensus.failure().code, ErrorCode::kCorrupt);
}

TEST_F(StreamsAlone, AMessageThatIsTooLongForItsReceiveIsBlamedWhenItIsPosted) {
  send_from(1, 5, pattern(101, 1));
  serve();
  (void)post_receive(1, 5, got_);
  EXPECT_EQ(consensus.failure().code, ErrorCode::kLimit);
}

TEST_F(StreamsAlone, WhoLeavesFlushesAndSaysGoodbye) {
  peers[1].sending = true;
  const auto bytes = pattern(100, 1);
  (void)post_send(1, 5, bytes);
  peers[1].sending = false;
  EXPECT_FALSE(streams.may_end());
  streams.leave(Clock::now() + 20s);
  EXPECT_FALSE(streams.may_end()) << "a message is on its way";
  const Deadline wake_at = prepare();
  EXPECT_LE(wake_at, Clock::now() + 1ms);
  EXPECT_EQ(links.said_to(1), Said{});
  serve();
  EXPECT_TRUE(streams.may_end());
  EXPECT_EQ(links.said_to(1), Said{Goodbye{0}});
  EXPECT_TRUE(streams.may_end());
  EXPECT_EQ(links.said_to(1), Said{}) << "once";
}

TEST_F(StreamsAlone, WhoIsLateLeavesAllTheSame) {
  peers[1].sending = true;
  const auto bytes = pattern(100, 1);
  (void)post_send(1, 5, bytes);
  streams.leave(Clock::now());
  EXPECT_TRUE(streams.may_end());
}

}  // namespace
}  // namespace deltawire::test::streams_test
