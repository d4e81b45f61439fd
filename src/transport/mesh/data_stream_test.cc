// Unit tests of data streams, including hostile peers: headers, messages, and their operations.
#include "transport/mesh/data_stream.h"

#include <algorithm>
#include <array>
#include <list>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "base/refusal_testing.h"
#include "transport/links/playback_link_testing.h"

namespace deltawire::data_stream_test {
namespace {

constexpr std::chrono::milliseconds kNoPatience{0};

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
    testing::expect_refused(decoded(magic, flipped), ErrorCode::kCorrupt,
                            "message header is damaged in the data stream from rank 3");
  }
}

TEST(MessageHeader, ItsLastBytesAreZero) {
  MessageHeaderBytes bytes = encode_message_header({42, 1000});
  EXPECT_EQ(load_le<std::uint64_t>(bytes.data() + 24), 0u);
  bytes[31] = std::byte{1};
  store_le(bytes.data() + 4, crc32c(Bytes(bytes).subspan(8), crc32c(Bytes(bytes).first(4))));
  EXPECT_EQ(decode_message_header(bytes, 3).error().code, ErrorCode::kCorrupt);
}

TEST(MessageHeader, AnAbsurdLengthIsRefused) {
  for (const std::uint64_t length : {kMessageBytesMax + 1, ~std::uint64_t{0}}) {
    const auto header = decode_message_header(encode_message_header({1, length}), 3);
    ASSERT_FALSE(header.has_value());
    EXPECT_NE(header.error().text().find("message length"), std::string::npos);
  }
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

TEST(DataReceiver, PausesWhenUnexpectedMessagesHaveNoRoomAndGoesOn) {
  PlaybackLink link;
  for (Tag tag = 0; tag < 200; ++tag) add_message(link, tag, 100, 100);
  UnexpectedBlocks blocks;
  DataReceiver receiver(1, link, blocks, kNoPatience);
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
  add_message(link, 1, UnexpectedMessages::kBytesMax, 10);
  UnexpectedBlocks blocks;
  DataReceiver receiver(1, link, blocks, kNoPatience);
  EXPECT_EQ(drain(receiver, link).kind, StreamStep::Kind::kIdle);
  EXPECT_LE(link.longest_read, kStepBytes);  // and no more memory was taken for it
  // The store is spoken for, so the next peer-sized claim has to wait; but no memory was taken for it.
  UnexpectedMessages store(blocks);
  store.add(1, UnexpectedMessages::kBytesMax);
  EXPECT_FALSE(store.has_room(1));
  EXPECT_TRUE(store.newest().blocks.empty());
  store.remove(store.newest());
  EXPECT_TRUE(store.has_room(UnexpectedMessages::kBytesMax));
  EXPECT_FALSE(store.has_room(UnexpectedMessages::kBytesMax + 1));
}

TEST(UnexpectedMessages, HoldsTheMaximumOfMessagesAndNotOneMore) {
  UnexpectedBlocks blocks;
  UnexpectedMessages store(blocks);
  for (std::size_t i = 0; i < UnexpectedMessages::kMessagesMax; ++i) {
    ASSERT_TRUE(store.has_room(0)) << i;
    store.add(i, 0);
  }
  EXPECT_FALSE(store.has_room(0));
  store.remove(*store.find(5));
  EXPECT_TRUE(store.has_room(0));
}

// Memory that is kept between messages is bounded; the rest is freed.
TEST(UnexpectedMessages, KeepsSoMuchMemoryAndNoMore) {
  UnexpectedBlocks blocks;
  UnexpectedMessages store(blocks);
  const auto fill = [&store](std::uint64_t length) {
    store.add(1, length);
    while (store.newest().arrived < length) store.newest().arrived += store.room().size();
    store.remove(*store.find(1));
  };
  fill(3 * UnexpectedBlock::kBytes + 1);
  EXPECT_EQ(blocks.spare(), 4u);
  fill(2 * UnexpectedBlock::kBytes);
  EXPECT_EQ(blocks.spare(), 4u);  // the same ones
  fill(UnexpectedMessages::kBytesMax);
  EXPECT_EQ(blocks.spare(), UnexpectedBlocks::kSpareMax);
}

TEST(UnexpectedMessages, BlocksAreReservedWithThoseInUse) {
  UnexpectedBlocks blocks;
  std::list<UnexpectedBlock> used;
  blocks.append_to(used);
  blocks.append_to(used);
  blocks.reserve(8);
  EXPECT_EQ(blocks.spare(), 8u);  // ten in all: a quarter more than was asked for
  blocks.reserve(10);
  EXPECT_EQ(blocks.spare(), 8u);
  blocks.append_to(used);
  blocks.reserve(10);
  blocks.take_back(used);
  EXPECT_EQ(blocks.spare(), 10u);
  blocks.reserve(10 * UnexpectedBlocks::kSpareMax);
  EXPECT_EQ(blocks.spare(), UnexpectedBlocks::kSpareMax);
}

// Its bytes stop for a while anywhere, at the edge of a block too.
TEST(UnexpectedMessages, AMessageThatComesInTwoHalvesIsWhole) {
  std::vector<std::byte> sent(2 * UnexpectedBlock::kBytes + 7);
  for (std::size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<std::byte>(i % 251);
  UnexpectedBlocks blocks;
  constexpr std::size_t kBlock = UnexpectedBlock::kBytes;
  for (const std::size_t half : {std::size_t{0}, std::size_t{1}, kBlock - 1, kBlock,
                                 UnexpectedBlock::kBytes + 1, 2 * UnexpectedBlock::kBytes}) {
    PlaybackLink link;
    link.at_once = ~std::size_t{0};
    DataReceiver receiver(1, link, blocks, kNoPatience);
    link.add(encode_message_header({5, sent.size()}));
    link.add(Bytes(sent).first(half));
    for (int i = 0; i < 5; ++i) EXPECT_NE(receiver.step().kind, StreamStep::Kind::kFailed);
    link.add(Bytes(sent).subspan(half));
    EXPECT_EQ(drain(receiver, link).kind, StreamStep::Kind::kIdle);
    std::vector<std::byte> got(sent.size());
    Operation receive;
    receive.tag = 5;
    receive.capacity = got;
    (void)receiver.post(receive);
    EXPECT_TRUE(receive.done && got == sent) << half;
  }
  EXPECT_EQ(blocks.spare(), 4u);  // one to read into, for all receivers
}

TEST(OperationList, GivesTheFirstOfItsTagFromAnywhere) {
  std::array<Operation, 4> all;
  for (std::size_t i = 0; i < all.size(); ++i) all[i].tag = i / 2;
  OperationList list;
  const auto push_all = [&] {
    for (Operation& each : all) list.push_back(each);
  };
  push_all();
  EXPECT_EQ(list.take(7), nullptr);
  EXPECT_EQ(list.take(1), &all[2]);
  EXPECT_EQ(list.take(1), &all[3]);  // the last: what is pushed now comes behind the others all the same
  list.push_back(all[3]);
  EXPECT_EQ(list.take(0), &all[0]);
  EXPECT_EQ(&list.front(), &all[1]);
  list.pop_front();
  EXPECT_EQ(&list.front(), &all[3]);
  list.pop_front();
  EXPECT_TRUE(list.empty());
  push_all();
  list.clear();
  push_all();
  EXPECT_EQ(list.take(1), &all[2]);
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
      UnexpectedBlocks blocks;
      DataReceiver receiver(2, link, blocks, kNoPatience);
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
        testing::expect_error(step.failure, ErrorCode::kLimit, 2,
                              {"of 101 bytes with tag 7, but at most 100"});
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
  UnexpectedBlocks blocks;
  DataReceiver receiver(1, link, blocks, kNoPatience);
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
  EXPECT_LE(link.reads, bytes / ((std::size_t{16} << 10) - kMessageHeaderBytes) + 2);
}

// Into a receive, and into the unexpected messages: the other peers get their turn.
TEST(DataReceiver, AStepTakesSoMuchAndNoMore) {
  constexpr std::size_t kLength = 3 * kStepBytes;
  for (const bool posted : {true, false}) {
    PlaybackLink link;
    link.at_once = ~std::size_t{0};
    add_message(link, 1, kLength, kLength);
    UnexpectedBlocks blocks;
    DataReceiver receiver(1, link, blocks, kNoPatience);
    std::vector<std::byte> memory(kLength);
    Operation receive;
    receive.tag = 1;
    receive.capacity = memory;
    if (posted) (void)receiver.post(receive);
    while (link.left() > 0) {
      const std::size_t before = link.left();
      ASSERT_EQ(receiver.step().kind, StreamStep::Kind::kMoved);
      EXPECT_LE(before - link.left(), kStepBytes);
    }
    if (!posted) (void)receiver.post(receive);
    EXPECT_TRUE(receive.done && std::ranges::count(memory, std::byte{1}) == kLength);
  }
}

TEST(DataReceiver, GarbageIsCorruptAtItsFirstHeader) {
  PlaybackLink link;
  link.add(5000, std::byte{0x5A});
  UnexpectedBlocks blocks;
  DataReceiver receiver(2, link, blocks, kNoPatience);
  const StreamStep step = drain(receiver, link);
  ASSERT_EQ(step.kind, StreamStep::Kind::kFailed);
  testing::expect_error(step.failure, ErrorCode::kCorrupt, 2);
}

}  // namespace
}  // namespace deltawire::data_stream_test
