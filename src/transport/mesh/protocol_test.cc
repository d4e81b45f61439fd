// The pieces of the protocol by themselves: headers, control messages, and streams from hostile peers.
#include <algorithm>
#include <cstring>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "transport/mesh/control_message.h"
#include "transport/mesh/data_receiver.h"
#include "transport/mesh/data_sender.h"
#include "transport/mesh/message_header.h"
#include "transport/mesh/playback_link.h"
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

// Headers from a peer that computes its own checksums.
TEST(MessageHeader, MagicAndChecksumAreAsTheFormatSays) {
  constexpr std::uint32_t kMagic = 0x4D445744;
  const auto decoded = [](std::uint32_t magic, std::uint32_t flipped) {
    MessageHeaderBytes bytes = encode_message_header({42, 1000});
    store_le(bytes.data(), magic);
    const std::uint32_t of_magic = crc32c(Bytes(bytes).first(4));
    store_le(bytes.data() + 4, crc32c(Bytes(bytes).subspan(8), of_magic) ^ flipped);
    return decode_message_header(bytes, 3);
  };
  EXPECT_TRUE(decoded(kMagic, 0));
  const std::vector<std::pair<std::uint32_t, std::uint32_t>> wrong{{0, 0},   {kMagic - 1, 0}, {kMagic + 1, 0},
                                                                   {~0U, 0}, {kMagic, 1},     {kMagic, ~0U}};
  for (const auto& [magic, flipped] : wrong) {
    const auto header = decoded(magic, flipped);
    ASSERT_FALSE(header) << magic << " " << flipped;
    EXPECT_EQ(header.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(header.error().message.find("message header is damaged in the data stream from rank 3"),
              std::string::npos);
  }
}

TEST(MessageHeader, AnAbsurdLengthIsRefused) {
  for (const std::uint64_t length : {kMessageBytesMax + 1, ~std::uint64_t{0}}) {
    const auto header = decode_message_header(encode_message_header({1, length}), 3);
    ASSERT_FALSE(header.has_value());
    EXPECT_NE(header.error().message.find("message length"), std::string::npos);
  }
}

constexpr int kWorld = 11;

RankSet ranks_of(std::initializer_list<int> ranks) {
  RankSet set(kWorld);
  for (const int rank : ranks) set.add(rank);
  return set;
}

// One of each kind, with every field other than its default.
std::vector<ControlMessage> all_kinds() {
  SettleRound round;
  round.number = 3;
  round.known.decided = 17;
  round.known.voters = ranks_of({0, 9});
  round.known.ballot = {16, 0xD1};
  round.absent = ranks_of({10});
  return {Abort{ErrorCode::kLimit, 2, 0, "why not"},
          Waiting{1, 77},
          Waiting{-1, 0},
          Goodbye{~std::uint64_t{0}},
          Here{0x0123456789},
          Start{41},
          Vote{17, {16, 0xFEDCBA9876543210}},
          round,
          Verdict{18, round.absent}};
}

std::vector<std::byte> bytes_of(const std::vector<ControlMessage>& messages) {
  std::vector<std::byte> bytes;
  for (const ControlMessage& message : messages) append_control_message(message, bytes);
  return bytes;
}

TEST(ControlMessage, ComesBackHoweverItWasCut) {
  const std::vector<ControlMessage> sent = all_kinds();
  const std::vector<std::byte> bytes = bytes_of(sent);
  for (std::size_t step = 1; step <= bytes.size(); ++step) {
    ControlParser parser(kWorld);
    std::vector<ControlMessage> messages;
    for (std::size_t at = 0; at < bytes.size(); at += step) {
      ASSERT_TRUE(parser.feed(Bytes(bytes).subspan(at, std::min(step, bytes.size() - at)), messages));
    }
    ASSERT_TRUE(messages == sent) << "in pieces of " << step;
  }
}

TEST(ControlMessage, EveryFlippedBitIsFound) {
  const std::vector<ControlMessage> sent = all_kinds();
  const std::vector<std::byte> good = bytes_of(sent);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    bad.resize(bad.size() + kControlContentMax);  // whatever length it now claims is there
    ControlParser parser(kWorld);
    std::vector<ControlMessage> messages;
    EXPECT_FALSE(parser.feed(bad, messages)) << bit;
    EXPECT_LT(messages.size(), sent.size());
  }
}

// Contents with a right checksum that say what can't be meant.
TEST(ControlMessage, NonsenseIsRefused) {
  const auto refused = [](std::uint8_t kind, std::size_t content, const std::vector<std::size_t>& set_bits) {
    std::vector<std::byte> bytes(kControlHeaderBytes + content);
    std::vector<std::byte> any;
    append_control_message(Here{}, any);
    std::copy_n(any.begin(), 4, bytes.begin());  // the magic
    bytes[8] = static_cast<std::byte>(kind);
    store_le(bytes.data() + 10, static_cast<std::uint16_t>(content));
    for (const std::size_t bit : set_bits) {
      bytes[kControlHeaderBytes + bit / 8] |= std::byte{1} << (bit % 8);
    }
    store_le(bytes.data() + 4, crc32c(Bytes(bytes).subspan(8)));
    std::vector<ControlMessage> messages;
    return !ControlParser(kWorld).feed(bytes, messages);
  };
  EXPECT_FALSE(refused(4, 8, {}));  // as it should be
  EXPECT_TRUE(refused(4, 7, {}));
  EXPECT_TRUE(refused(4, 9, {}));
  EXPECT_TRUE(refused(0, 8, {}));
  EXPECT_TRUE(refused(9, 8, {}));
  EXPECT_TRUE(refused(2, 12, {31}));  // waits for rank 2^31
  EXPECT_TRUE(refused(1, 12, {16}));  // the reserved bits of an abort
  const std::size_t round = 4 + 8 + 16 + 2 + 2;
  EXPECT_FALSE(refused(7, round, {}));
  EXPECT_TRUE(refused(7, round, {8 * 28 + kWorld}));  // a voter beyond the world
  EXPECT_TRUE(refused(7, round, {8 * 30 + kWorld}));  // an absent rank beyond it
  EXPECT_FALSE(refused(7, round, {8 * 28 + kWorld - 1}));
  EXPECT_TRUE(refused(1, 12 + kControlTextMax + 1, {}));
}

TEST(ControlMessage, RanksOutsideTheWorldAreRefused) {
  std::vector<ControlMessage> messages;
  EXPECT_FALSE(ControlParser(2).feed(bytes_of({Abort{ErrorCode::kLimit, 2, 0, ""}}), messages));
  EXPECT_FALSE(ControlParser(2).feed(bytes_of({Waiting{2, 0}}), messages));
}

TEST(ControlMessage, TextsAreOneLineAndLongOnesAreCut) {
  const auto bytes = bytes_of(
      {Abort{ErrorCode::kLimit, 0, 0, "why\nnot"}, Abort{ErrorCode::kLimit, 0, 0, std::string(2000, 'x')}});
  std::vector<ControlMessage> messages;
  ASSERT_TRUE(ControlParser(1).feed(bytes, messages));
  EXPECT_EQ(std::get<Abort>(messages[0]).text, "why not");
  EXPECT_EQ(std::get<Abort>(messages[1]).text, std::string(kControlTextMax, 'x'));
}

TEST(ControlMessage, TextsAreOneLineOfUtf8WhateverTheyWere) {
  // Cut where 512 bytes end: amid a character, whose first byte must not travel.
  std::string cut = "x";
  while (cut.size() < 600) cut += "\xC3\xA9";
  std::vector<std::byte> bytes =
      bytes_of({Abort{ErrorCode::kLimit, 0, 0, cut}, Abort{ErrorCode::kLimit, 0, 0, "a\nb\x1B[2J\xFF"}});
  std::vector<ControlMessage> messages;
  ASSERT_TRUE(ControlParser(1).feed(bytes, messages));
  EXPECT_EQ(std::get<Abort>(messages[0]).text, cut.substr(0, 511));
  EXPECT_EQ(std::get<Abort>(messages[1]).text, "a b [2J\xEF\xBF\xBD");
  // From a peer that sends what it likes.
  bytes = bytes_of({Abort{ErrorCode::kLimit, 0, 0, "0123456789"}});
  std::fill_n(bytes.end() - 10, 3, std::byte{0xC3});
  bytes.back() = std::byte{'\n'};
  store_le(bytes.data() + 4, crc32c(Bytes(bytes).subspan(8)));
  messages.clear();
  ASSERT_TRUE(ControlParser(1).feed(bytes, messages));
  EXPECT_EQ(std::get<Abort>(messages[0]).text,
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "345678 ");
  // Damaged bytes become longer ones: the text stays as long as it may be, and can be passed on unchanged.
  bytes = bytes_of({Abort{ErrorCode::kLimit, 0, 0, std::string(kControlTextMax, 'x')}});
  std::fill_n(bytes.end() - kControlTextMax, kControlTextMax, std::byte{0xFF});
  store_le(bytes.data() + 4, crc32c(Bytes(bytes).subspan(8)));
  messages.clear();
  ASSERT_TRUE(ControlParser(1).feed(bytes, messages));
  EXPECT_EQ(std::get<Abort>(messages[0]).text.size(), kControlTextMax / 3 * 3);
  std::vector<ControlMessage> passed_on;
  ASSERT_TRUE(ControlParser(1).feed(bytes_of(messages), passed_on));
  EXPECT_TRUE(passed_on == messages);
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
  // A cycle that begins further on, and one through the asking rank: all in it wait, so `first` is named.
  graph.set(0, 2);
  EXPECT_TRUE(graph.follow(4, 0).cycle);
  EXPECT_EQ(graph.follow(4, 0).suspect, 0);
  graph.set(3, 0);
  EXPECT_TRUE(graph.follow(0, 1).cycle);
  EXPECT_EQ(graph.follow(0, 1).suspect, 1);
}

// A message on its way, whose bytes say its tag.
void add_message(PlaybackLink& link, Tag tag, std::uint64_t claimed_length, std::size_t real_length) {
  link.add(encode_message_header({tag, claimed_length}));
  link.add(real_length, static_cast<std::byte>(tag));
}

StreamStep drain(DataReceiver& receiver, const PlaybackLink& link) {
  StreamStep step;
  for (std::size_t before = ~std::size_t{0}; link.left() != before;) {
    before = link.left();
    step = receiver.step();
    if (step.kind == StreamStep::Kind::kPaused || step.kind == StreamStep::Kind::kFailed) break;
  }
  return step;
}

TEST(DataReceiver, PausesWhenTheEarlyStoreIsFullAndGoesOn) {
  PlaybackLink link;
  for (Tag tag = 0; tag < 200; ++tag) add_message(link, tag, 100, 100);
  DataReceiver receiver(1, link);
  EXPECT_EQ(drain(receiver, link).kind, StreamStep::Kind::kPaused);
  EXPECT_GT(link.left(), 0u);
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
  add_message(link, 1, EarlyStore::kBytesMax, 10);
  DataReceiver receiver(1, link);
  EXPECT_EQ(drain(receiver, link).kind, StreamStep::Kind::kIdle);
  EXPECT_LE(link.longest_read, kStepBytes);  // and no more memory was taken for it
  // The store is spoken for, so the next peer-sized claim has to wait; but no memory was taken for it.
  EarlyStore store;
  const EarlyStore::Place place = store.add(1, EarlyStore::kBytesMax);
  EXPECT_FALSE(store.has_room(1));
  EXPECT_EQ(place->second.bytes.capacity(), 0u);
  store.remove(place);
  EXPECT_TRUE(store.has_room(EarlyStore::kBytesMax));
  EXPECT_FALSE(store.has_room(EarlyStore::kBytesMax + 1));
}

TEST(EarlyStore, HoldsSoManyMessagesAndNotOneMore) {
  EarlyStore store;
  for (std::size_t i = 0; i < EarlyStore::kMessagesMax; ++i) {
    ASSERT_TRUE(store.has_room(0)) << i;
    store.add(i, 0);
  }
  EXPECT_FALSE(store.has_room(0));
  store.remove(store.find(5));
  EXPECT_TRUE(store.has_room(0));
}

// Whatever the link takes at once, so that it ends within the header, a piece, or at an edge.
TEST(DataSender, PiecesLeaveWholeHoweverTheyWereCut) {
  std::vector<std::vector<std::byte>> memory;
  for (const std::size_t length : {7U, 0U, 50U, 3U, 1U, 20U}) memory.emplace_back(length, std::byte(length));
  Operation send;
  send.tag = 42;
  std::vector<std::byte> expected;
  for (const auto& piece : memory) {
    send.pieces.emplace_back(piece);
    send.length += piece.size();
  }
  const MessageHeaderBytes header = encode_message_header({send.tag, send.length});
  expected.insert(expected.end(), header.begin(), header.end());
  for (const auto& piece : memory) expected.insert(expected.end(), piece.begin(), piece.end());
  for (std::size_t at_once = 1; at_once <= expected.size(); ++at_once) {
    PlaybackLink link;
    link.at_once = at_once;
    DataSender sender(link);
    send.done = false;
    sender.post(send);
    EXPECT_EQ(sender.step().kind, StreamStep::Kind::kIdle);
    EXPECT_TRUE(send.done);
    ASSERT_TRUE(link.sent == expected) << at_once << " bytes at once";
  }
}

// The receive was posted before the message came, or when it was there, or when half of it was.
TEST(DataReceiver, AMessageLongerThanItsReceiveIsAnErrorAndNothingIsWritten) {
  constexpr std::size_t kCapacity = 100;
  for (const std::size_t there : {std::size_t{0}, kCapacity / 2, kCapacity, kCapacity + 1}) {
    for (const std::size_t length : {kCapacity, kCapacity + 1}) {
      PlaybackLink link;
      DataReceiver receiver(2, link);
      std::vector<std::byte> memory(kCapacity + 8, std::byte{0xEE});
      Operation receive;
      receive.kind = Operation::Kind::kReceive;
      receive.tag = 7;
      receive.capacity = MutBytes(memory).first(kCapacity);
      if (there > 0) add_message(link, 7, length, std::min(there, length));
      EXPECT_EQ(drain(receiver, link).kind, StreamStep::Kind::kIdle);
      StreamStep step = receiver.post(receive);
      if (step.kind == StreamStep::Kind::kMoved) {
        if (there == 0) link.add(encode_message_header({7, length}));
        link.add(length - std::min(there, length), std::byte{7});
        step = drain(receiver, link);
      }
      EXPECT_EQ(receive.done, length == kCapacity) << there;
      if (length > kCapacity) {
        ASSERT_EQ(step.kind, StreamStep::Kind::kFailed) << there;
        EXPECT_EQ(step.failure.code, ErrorCode::kLimit);
        EXPECT_EQ(step.failure.suspect, 2);
        EXPECT_NE(step.failure.message.find("of 101 bytes with tag 7, but at most 100"), std::string::npos);
      }
      const std::size_t written = length == kCapacity ? kCapacity : 0;
      EXPECT_EQ(std::ranges::count(memory, std::byte{0xEE}),
                static_cast<std::ptrdiff_t>(memory.size() - written));
    }
  }
}

// A message that was cut by the end of a read doesn't cost a read of its own.
TEST(DataReceiver, SmallMessagesComeOutOfFewReads) {
  constexpr std::size_t kMessages = 500;
  constexpr std::size_t kLength = 300;
  PlaybackLink link;
  link.at_once = ~std::size_t{0};
  DataReceiver receiver(1, link);
  std::vector<std::byte> memory(kMessages * kLength);
  std::vector<Operation> receives(kMessages);
  for (std::size_t i = 0; i < kMessages; ++i) {
    add_message(link, i, kLength, kLength);
    receives[i].kind = Operation::Kind::kReceive;
    receives[i].tag = i;
    receives[i].capacity = MutBytes(memory).subspan(kLength * i, kLength);
    (void)receiver.post(receives[i]);
  }
  const std::size_t bytes = link.left();
  EXPECT_EQ(drain(receiver, link).kind, StreamStep::Kind::kIdle);
  EXPECT_TRUE(receives.back().done);
  EXPECT_LE(link.reads, bytes / (4096 - kMessageHeaderBytes) + 2);
}

TEST(DataReceiver, GarbageIsCorruptAtItsFirstHeader) {
  PlaybackLink link;
  link.add(5000, std::byte{0x5A});
  DataReceiver receiver(2, link);
  const StreamStep step = drain(receiver, link);
  ASSERT_EQ(step.kind, StreamStep::Kind::kFailed);
  EXPECT_EQ(step.failure.code, ErrorCode::kCorrupt);
  EXPECT_EQ(step.failure.suspect, 2);
}

}  // namespace
}  // namespace deltawire
