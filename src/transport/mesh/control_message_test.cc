// Unit tests of control messages, including hostile ones, and of the graph of waits.
#include "transport/mesh/control_message.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "base/little_endian.h"
#include "transport/mesh/wait_announcer.h"

namespace deltawire::control_message_test {
namespace {

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
  const Error with_fields{.code = ErrorCode::kTimeout,
                          .message = "why not",
                          .suspect = kWorld + 1000,
                          .reporter = 3,
                          .waits_for = 4,
                          .ranks = {5, kWorld + 2},
                          .tensor = "layers.rank 1.w",
                          .advice = "see its own log"};
  Error inside = with_fields;
  inside.message.clear();
  inside.suspect = 4;
  return {Abort{{ErrorCode::kLimit, "why not", 2}, 0},
          Abort{with_fields, 0},
          Waiting{1, 77},
          Waiting{-1, 0},
          Goodbye{~std::uint64_t{0}},
          Here{0x0123456789, 2},
          Here{7, -1},
          Start{41},
          Vote{17, {16, 0xFEDCBA9876543210}},
          round,
          Verdict{18, round.absent},
          Dropped{10, {ErrorCode::kTimeout, "too late", 4}},
          Dropped{10, inside}};
}

std::vector<std::byte> bytes_of(const std::vector<ControlMessage>& messages) {
  std::vector<std::byte> bytes;
  for (const ControlMessage& message : messages) append_control_message(message, kWorld, bytes);
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

TEST(ControlMessage, EveryErrorCodeComesBack) {
  for (auto code = static_cast<std::uint16_t>(ErrorCode::kInvalidArgument);
       code <= static_cast<std::uint16_t>(kLastErrorCode); ++code) {
    const std::vector<ControlMessage> sent{Abort{{static_cast<ErrorCode>(code), "why not", 2}, 0}};
    ControlParser parser(kWorld);
    std::vector<ControlMessage> messages;
    ASSERT_TRUE(parser.feed(bytes_of(sent), messages));
    EXPECT_TRUE(messages == sent) << code;
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

// A wrong length would be waited for, and the stream be silent meanwhile.
TEST(ControlMessage, AHeaderIsRefusedBeforeItsContentHasCome) {
  for (const ControlMessage& each : all_kinds()) {
    const std::vector<std::byte> good = bytes_of({each});
    for (std::size_t bit = 0; bit < 8 * kControlHeaderBytes; ++bit) {
      const bool is_of_content = bit >= 32 && bit < 64;
      if (is_of_content) continue;
      std::vector<std::byte> bad = good;
      bad[bit / 8] ^= std::byte{1} << (bit % 8);
      std::vector<ControlMessage> messages;
      EXPECT_FALSE(ControlParser(kWorld).feed(Bytes(bad).first(kControlHeaderBytes), messages)) << bit;
    }
  }
}

// Contents with a correct checksum and invalid values.
TEST(ControlMessage, NonsenseIsRefused) {
  const auto refused = [](std::uint8_t kind, std::size_t content, const std::vector<std::size_t>& set_bits) {
    std::vector<std::byte> bytes(kControlHeaderBytes + content);
    std::vector<std::byte> any;
    append_control_message(Here{}, kWorld, any);
    std::copy_n(any.begin(), 4, bytes.begin());  // the magic
    bytes[8] = static_cast<std::byte>(kind);
    store_le(bytes.data() + 10, static_cast<std::uint16_t>(content));
    for (const std::size_t bit : set_bits) {
      bytes[kControlHeaderBytes + bit / 8] |= std::byte{1} << (bit % 8);
    }
    seal_control_message(bytes);
    std::vector<ControlMessage> messages;
    return !ControlParser(kWorld).feed(bytes, messages);
  };
  EXPECT_FALSE(refused(4, 12, {}));  // as it should be
  EXPECT_TRUE(refused(4, 11, {}));
  EXPECT_TRUE(refused(4, 13, {}));
  EXPECT_TRUE(refused(4, 12, {64 + 31}));  // rank 2^31 is deaf
  EXPECT_TRUE(refused(0, 8, {}));
  EXPECT_TRUE(refused(10, 8, {}));
  EXPECT_FALSE(refused(9, 12, {}));
  EXPECT_TRUE(refused(9, 11, {}));
  EXPECT_TRUE(refused(9, 12, {16}));       // fields of one byte, which is not there
  EXPECT_TRUE(refused(9, 12, {32 + 31}));  // rank 2^31 is lost
  EXPECT_TRUE(refused(9, 12, {64 + 31}));  // it blamed rank 2^31
  EXPECT_TRUE(refused(9, 12 + kControlTextMax + 1, {}));
  EXPECT_TRUE(refused(2, 12, {31}));  // waits for rank 2^31
  EXPECT_TRUE(refused(1, 12, {16}));
  const std::size_t fields = 3 * 4 + 2 + 2;
  const std::size_t all = 16 + 4;  // the bit of the length of 16 bytes of fields
  EXPECT_FALSE(refused(1, 12 + fields, {all}));
  EXPECT_FALSE(refused(9, 12 + fields, {all}));
  EXPECT_TRUE(refused(1, 12 + fields - 1, {all}));
  for (const std::size_t rank : {0U, 4U, 8U})
    EXPECT_TRUE(refused(1, 12 + fields, {all, 8 * (12 + rank) + 31}));
  EXPECT_TRUE(refused(1, 12 + fields, {all, 8 * (12 + 12)}));  // a rank that is not there
  EXPECT_TRUE(refused(1, 12 + fields, {all, 8 * (12 + 14)}));  // a name that is not there
  const auto with_fields_of = [&](std::size_t bytes) {
    std::vector<std::size_t> bits;
    for (std::size_t bit = 0; bit < 16; ++bit) {
      if ((bytes >> bit & 1) != 0) bits.push_back(16 + bit);
    }
    return refused(1, 12 + bytes, bits);
  };
  EXPECT_FALSE(with_fields_of(fields + kControlTextMax));  // an advice of zeros
  EXPECT_TRUE(with_fields_of(fields + kControlTextMax + 1));
  const std::size_t round = 4 + 8 + 16 + 2 + 2;
  EXPECT_FALSE(refused(7, round, {}));
  EXPECT_TRUE(refused(7, round, {8 * 28 + kWorld}));  // a voter beyond the world
  EXPECT_TRUE(refused(7, round, {8 * 30 + kWorld}));  // an absent rank beyond it
  EXPECT_FALSE(refused(7, round, {8 * 28 + kWorld - 1}));
  EXPECT_TRUE(refused(1, 12 + kControlTextMax + 1, {}));
}

TEST(ControlMessage, RanksOutsideTheWorldAreRefused) {
  std::vector<ControlMessage> messages;
  EXPECT_FALSE(ControlParser(2).feed(bytes_of({Abort{{ErrorCode::kLimit, "", 2}, 0}}), messages));
  EXPECT_FALSE(ControlParser(2).feed(bytes_of({Waiting{2, 0}}), messages));
  EXPECT_FALSE(ControlParser(2).feed(bytes_of({Here{0, 2}}), messages));
  EXPECT_FALSE(ControlParser(2).feed(bytes_of({Dropped{2, {ErrorCode::kPeerLost, ""}}}), messages));
  EXPECT_FALSE(ControlParser(2).feed(bytes_of({Dropped{-1, {ErrorCode::kPeerLost, ""}}}), messages));
  EXPECT_FALSE(ControlParser(2).feed(bytes_of({Dropped{1, {ErrorCode::kPeerLost, "", 2}}}), messages));
}

TEST(ControlMessage, AnErrorComesBackFromItsMessages) {
  const Error inside{.code = ErrorCode::kTimeout,
                     .message = "rank 1 waited",
                     .suspect = 2,
                     .reporter = 1,
                     .waits_for = 3,
                     .ranks = {3, 2},
                     .tensor = "w",
                     .advice = "see its own log"};
  Error outside = inside;
  outside.suspect = kWorld + 7;  // RankNames::rank_of
  for (const Error& error : {inside, outside, Error{ErrorCode::kAborted, "enough", 1}}) {
    std::vector<ControlMessage> messages;
    const auto bytes = bytes_of({Abort{error, 1}, Dropped{4, error}});
    ASSERT_TRUE(ControlParser(kWorld).feed(bytes, messages));
    EXPECT_EQ(std::get<Abort>(messages.at(0)).error, error);
    EXPECT_EQ(std::get<Dropped>(messages.at(1)).error, error);
    EXPECT_EQ(std::get<Abort>(messages[0]).origin, 1);
    EXPECT_EQ(std::get<Dropped>(messages[1]).rank, 4);
  }
}

TEST(ControlMessage, LongFieldsAreCut) {
  const Error error{.code = ErrorCode::kLimit,
                    .message = std::string(2000, 'm'),
                    .ranks = std::vector<int>(2000, 1),
                    .tensor = std::string(2000, 't'),
                    .advice = std::string(2000, 'a')};
  std::vector<ControlMessage> messages;
  ASSERT_TRUE(ControlParser(2).feed(bytes_of({Abort{error, 1}}), messages));
  const Error back = std::get<Abort>(messages.at(0)).error;
  EXPECT_EQ(back.message, std::string(kControlTextMax, 'm'));
  EXPECT_EQ(back.ranks, std::vector<int>(256, 1));
  EXPECT_EQ(back.tensor, std::string(256, 't'));
  EXPECT_EQ(back.advice, std::string(kControlTextMax, 'a'));
}

TEST(ControlMessage, TextsAreOneLineAndLongOnesAreCut) {
  const auto bytes = bytes_of({Abort{{ErrorCode::kLimit, "why\nnot", 0}, 0},
                               Abort{{ErrorCode::kLimit, std::string(2000, 'x'), 0}, 0}});
  std::vector<ControlMessage> messages;
  ASSERT_TRUE(ControlParser(1).feed(bytes, messages));
  EXPECT_EQ(std::get<Abort>(messages[0]).error.message, "why not");
  EXPECT_EQ(std::get<Abort>(messages[1]).error.message, std::string(kControlTextMax, 'x'));
}

TEST(ControlMessage, TextsAreOneLineOfUtf8WhateverTheyWere) {
  // Cut where 512 bytes end: amid a character, whose first byte must not travel.
  std::string cut = "x";
  while (cut.size() < 600) cut += "\xC3\xA9";
  std::vector<std::byte> bytes =
      bytes_of({Abort{{ErrorCode::kLimit, cut, 0}, 0}, Abort{{ErrorCode::kLimit, "a\nb\x1B[2J\xFF", 0}, 0}});
  std::vector<ControlMessage> messages;
  ASSERT_TRUE(ControlParser(1).feed(bytes, messages));
  EXPECT_EQ(std::get<Abort>(messages[0]).error.message, cut.substr(0, 511));
  EXPECT_EQ(std::get<Abort>(messages[1]).error.message, "a b [2J\xEF\xBF\xBD");
  // From a peer that sends what it likes.
  bytes = bytes_of({Abort{{ErrorCode::kLimit, "0123456789", 0}, 0}});
  std::fill_n(bytes.end() - 10, 3, std::byte{0xC3});
  bytes.back() = std::byte{'\n'};
  seal_control_message(bytes);
  messages.clear();
  ASSERT_TRUE(ControlParser(1).feed(bytes, messages));
  EXPECT_EQ(std::get<Abort>(messages[0]).error.message,
            "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"
            "345678 ");
  // Damaged bytes become longer ones: the text stays as long as it may be, and can be passed on unchanged.
  bytes = bytes_of({Abort{{ErrorCode::kLimit, std::string(kControlTextMax, 'x'), 0}, 0}});
  std::fill_n(bytes.end() - kControlTextMax, kControlTextMax, std::byte{0xFF});
  seal_control_message(bytes);
  messages.clear();
  ASSERT_TRUE(ControlParser(1).feed(bytes, messages));
  EXPECT_EQ(std::get<Abort>(messages[0]).error.message.size(), kControlTextMax / 3 * 3);
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
  EXPECT_EQ(graph.follow(0, 1).chain, (std::vector{1, 2, 3}));
  EXPECT_EQ(graph.follow(0, 4).suspect, 4);
  graph.set(3, 1);
  EXPECT_TRUE(graph.follow(0, 2).cycle);
  EXPECT_EQ(graph.follow(0, 2).suspect, 2);
  // A cycle that begins further on, and one through the asking rank: all in it wait, so `first` is named.
  graph.set(0, 2);
  EXPECT_TRUE(graph.follow(4, 0).cycle);
  EXPECT_EQ(graph.follow(4, 0).suspect, 0);
  EXPECT_EQ(graph.follow(4, 0).circle, (std::vector<int>{2, 3, 1}));
  graph.set(3, 0);
  EXPECT_TRUE(graph.follow(0, 1).cycle);
  EXPECT_EQ(graph.follow(0, 1).suspect, 1);
  EXPECT_TRUE(graph.follow(0, 1).circle.empty());
}

}  // namespace
}  // namespace deltawire::control_message_test
