// The pieces of the protocol by themselves: headers, control messages, and streams from hostile peers.
#include <algorithm>
#include <cstring>
#include <deque>

#include <gtest/gtest.h>

#include "transport/mesh/control_message.h"
#include "transport/mesh/data_receiver.h"
#include "transport/mesh/message_header.h"
#include "transport/mesh/wait_graph.h"

namespace deltawire {
namespace {

TEST(MessageHeader, ComesBack) {
  const MessageHeaderBytes bytes = encode_message_header({0x0123456789ABCDEF, kMessageBytesMax});
  const auto header = decode_message_header(bytes, 3);
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->tag, 0x0123456789ABCDEFu);
  EXPECT_EQ(header->length, kMessageBytesMax);
}

TEST(MessageHeader, EveryFlippedBitIsFound) {
  const MessageHeaderBytes good = encode_message_header({42, 1000});
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    MessageHeaderBytes bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_EQ(decode_message_header(bad, 3).error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(decode_message_header(bad, 3).error().suspect, 3);
  }
}

TEST(MessageHeader, AnAbsurdLengthIsRefused) {
  for (const std::uint64_t length : {kMessageBytesMax + 1, ~std::uint64_t{0}}) {
    const auto header = decode_message_header(encode_message_header({1, length}), 3);
    ASSERT_FALSE(header.has_value());
    EXPECT_NE(header.error().message.find("message length"), std::string::npos);
  }
}

std::vector<std::byte> three_messages() {
  std::vector<std::byte> bytes;
  append_control_message({ControlMessage::Kind::kAbort, ErrorCode::kLimit, 2, 0, "why\nnot"}, bytes);
  append_control_message({ControlMessage::Kind::kWaiting, ErrorCode::kAborted, 1, -1, ""}, bytes);
  append_control_message({ControlMessage::Kind::kGoodbye, ErrorCode::kAborted, -1, -1, ""}, bytes);
  return bytes;
}

TEST(ControlMessage, ComesBackHoweverItWasCut) {
  const std::vector<std::byte> bytes = three_messages();
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    ControlParser parser(4);
    std::vector<ControlMessage> messages;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      ASSERT_TRUE(parser.feed(Bytes(bytes).subspan(at, std::min(step, bytes.size() - at)), messages));
    }
    ASSERT_EQ(messages.size(), 3u);
    EXPECT_EQ(messages[0].code, ErrorCode::kLimit);
    EXPECT_EQ(messages[0].rank, 2);
    EXPECT_EQ(messages[0].origin, 0);
    EXPECT_EQ(messages[0].text, "why not");  // one line, whatever was sent
    EXPECT_EQ(messages[1].rank, 1);
    EXPECT_EQ(messages[2].kind, ControlMessage::Kind::kGoodbye);
  }
}

TEST(ControlMessage, EveryFlippedBitIsFound) {
  const std::vector<std::byte> good = three_messages();
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    bad.resize(bad.size() + kControlTextMax);  // whatever length it now claims is there
    ControlParser parser(4);
    std::vector<ControlMessage> messages;
    EXPECT_FALSE(parser.feed(bad, messages)) << bit;
    EXPECT_LT(messages.size(), 3u);
  }
}

TEST(ControlMessage, RanksOutsideTheWorldAreRefused) {
  std::vector<ControlMessage> messages;
  EXPECT_FALSE(ControlParser(2).feed(three_messages(), messages));
}

TEST(ControlMessage, LongTextsAreCut) {
  std::vector<std::byte> bytes;
  append_control_message({ControlMessage::Kind::kAbort, ErrorCode::kLimit, 0, 0, std::string(2000, 'x')},
                         bytes);
  std::vector<ControlMessage> messages;
  ASSERT_TRUE(ControlParser(1).feed(bytes, messages));
  EXPECT_EQ(messages[0].text, std::string(kControlTextMax, 'x'));
}

TEST(WaitGraph, FollowsToTheOneWhoWaitsForNobody) {
  WaitGraph graph(5);
  EXPECT_FALSE(graph.anyone_waits());
  graph.set(1, 2);
  graph.set(2, 3);
  EXPECT_TRUE(graph.anyone_waits());
  EXPECT_EQ(graph.follow(0, 1).suspect, 3);
  EXPECT_EQ(graph.follow(0, 1).chain, "rank 1 waits for rank 2, rank 2 waits for rank 3");
  EXPECT_EQ(graph.follow(0, 4).suspect, 4);
  graph.set(3, 1);
  EXPECT_TRUE(graph.follow(0, 2).cycle);
  EXPECT_EQ(graph.follow(0, 2).suspect, 2);
  graph.set(3, 0);
  EXPECT_TRUE(graph.follow(0, 1).cycle);
}

// A link that plays back bytes, some at a time.
class PlaybackLink final : public Link {
 public:
  int fd() const noexcept override { return -1; }
  IoResult send(std::span<const iovec> pieces) noexcept override {
    return IoResult::moved(total_bytes(pieces));
  }
  IoResult recv(MutBytes into) noexcept override {
    const std::size_t count = std::min({into.size(), bytes.size(), at_once});
    if (count == 0) return IoResult::would_block();
    std::copy_n(bytes.begin(), count, into.begin());
    bytes.erase(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(count));
    return IoResult::moved(count);
  }
  bool delivered() noexcept override { return true; }

  void add(Tag tag, std::uint64_t claimed_length, std::size_t real_length) {
    const MessageHeaderBytes header = encode_message_header({tag, claimed_length});
    bytes.insert(bytes.end(), header.begin(), header.end());
    bytes.resize(bytes.size() + real_length, static_cast<std::byte>(tag));
  }

  std::deque<std::byte> bytes;
  std::size_t at_once = 1000;
};

StreamStep drain(DataReceiver& receiver, const PlaybackLink& link) {
  StreamStep step;
  for (std::size_t before = ~std::size_t{0}; link.bytes.size() != before;) {
    before = link.bytes.size();
    step = receiver.step();
    if (step.kind == StreamStep::Kind::kPaused || step.kind == StreamStep::Kind::kFailed) break;
  }
  return step;
}

TEST(DataReceiver, PausesWhenTheEarlyStoreIsFullAndGoesOn) {
  PlaybackLink link;
  for (Tag tag = 0; tag < 200; ++tag) link.add(tag, 100, 100);
  DataReceiver receiver(1, link);
  EXPECT_EQ(drain(receiver, link).kind, StreamStep::Kind::kPaused);
  EXPECT_FALSE(link.bytes.empty());
  for (Tag tag = 0; tag < 200; ++tag) {
    std::vector<std::byte> got(100);
    Operation receive;
    receive.kind = Operation::Kind::kReceive;
    receive.tag = tag;
    receive.capacity = got;
    EXPECT_EQ(receiver.post(receive).kind, StreamStep::Kind::kMoved);
    (void)drain(receiver, link);
    ASSERT_TRUE(receive.done);
    EXPECT_EQ(receive.length, 100u);
    EXPECT_EQ(got.back(), static_cast<std::byte>(tag));
  }
}

TEST(DataReceiver, AHugeClaimAllocatesNothingMuch) {
  PlaybackLink link;
  link.add(1, EarlyStore::kBytesMax, 10);
  DataReceiver receiver(1, link);
  EXPECT_EQ(drain(receiver, link).kind, StreamStep::Kind::kIdle);
  // The store is spoken for, so the next peer-sized claim has to wait; but no memory was taken for it.
  EarlyStore store;
  const EarlyStore::Place place = store.add(1, EarlyStore::kBytesMax);
  EXPECT_FALSE(store.has_room(1));
  EXPECT_EQ(place->second.bytes.capacity(), 0u);
  store.remove(place);
  EXPECT_TRUE(store.has_room(EarlyStore::kBytesMax));
  EXPECT_FALSE(store.has_room(EarlyStore::kBytesMax + 1));
}

TEST(DataReceiver, GarbageIsCorruptAtItsFirstHeader) {
  PlaybackLink link;
  link.bytes.resize(5000, std::byte{0x5A});
  DataReceiver receiver(2, link);
  const StreamStep step = drain(receiver, link);
  ASSERT_EQ(step.kind, StreamStep::Kind::kFailed);
  EXPECT_EQ(step.failure.code, ErrorCode::kCorrupt);
  EXPECT_EQ(step.failure.suspect, 2);
}

}  // namespace
}  // namespace deltawire
