// The bytes of messages, and what a decoder does with others.
#include "elastic/messages.h"

#include <string_view>

#include <gtest/gtest.h>

#include "base/refusal_testing.h"
#include "elastic/messages_testing.h"

namespace deltawire::elastic::messages_test {
namespace {

// Of all_messages(), in their order.
constexpr std::array<std::string_view, 25> kGolden{
    "01010a0003000000776879",
    "0102",
    "01030188776655443322110300000001070000000500000002000000000000000800000031302e302e302e31a073"
    "0300000007000000666430303a3a316712",
    "010401000000030000000800000031302e302e302e32a00f0c000000646972656374286670333229",
    "01050800000031302e302e302e32a00f0c000000646972656374286670333229",
    "010688776655443322110300000001070000000500000002000000000000000800000031302e302e302e31a07303"
    "00000007000000666430303a3a31671201000000080000000500000002000000000000000800000031302e302e30"
    "2e31a0730300000007000000666430303a3a3167120c000000000000000900000002000000000000000400000000"
    "0000000000e03f0100000002000000070000006974206c656674",
    "010701",
    "0108",
    "01090800000031302e302e302e31a073",
    "010a",
    "010b010700000019000000697420646964206e6f7420616e7377657220696e2074696d65",
    "010c07000000746f6f20666577",
    "010d010000000800000031302e302e302e31a073",
    "010e",
    "010f08000000020000000000000003000000",
    "0110",
    "01118877665544332211070000000500000002000000000000000800000031302e302e302e31a073030000000700"
    "0000666430303a3a31671201070000000500000002000000000000000800000031302e302e302e31a07303000000"
    "07000000666430303a3a3167120800000031302e302e302e3188130c000000000000000100000002000000150000"
    "006974732070726f636573732068617320656e646564020000000700000077656967687473020000000200000000"
    "00000003000000000000000400000062696173010000000300000000000000010000000700000077656967687473"
    "020000000200000000000000030000000000000001020000000000000003000000000000000000f83f0000000000"
    "00d03f0103000000",
    "0112abababababababababababababababababababababababababababababababab",
    "0113",
    "0114",
    "01151100000000000000",
    "0116",
    "0117887766554433221103000000070000006974206c656674",
    "0118",
    "0119e803000000000000abababababababababababababababababababababababababababababababab",
};

TEST(Messages, EachKindComesBack) {
  const auto messages = all_messages();
  ASSERT_EQ(messages.size(), std::variant_size_v<Message>);
  for (std::size_t kind = 0; kind < messages.size(); ++kind) {
    ASSERT_EQ(messages[kind].index(), kind);
    const auto bytes = encode(messages[kind]);
    const auto decoded = decode(bytes);
    ASSERT_TRUE(decoded) << kind << ": " << decoded.error().message;
    EXPECT_TRUE(*decoded == messages[kind]) << kind;
  }
}

TEST(Messages, CutOrLongerOnesAreRefused) {
  for (const Message& message : all_messages()) {
    auto bytes = encode(message);
    for (std::size_t count = 0; count < bytes.size(); ++count) {
      testing::expect_refused(decode(Bytes(bytes).first(count)), ErrorCode::kCorrupt);
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes)) << message.index();
  }
}

// Other bytes are another message, or none.
TEST(Messages, WhatIsDecodedHasTheSameBytes) {
  for (const Message& message : all_messages()) {
    const auto bytes = encode(message);
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      auto changed = bytes;
      changed[bit / 8] ^= std::byte{1} << (bit % 8);
      const auto decoded = decode(changed);
      // Unknown error codes are taken for another one.
      const bool is_refusal = decoded && std::holds_alternative<Refused>(*decoded);
      EXPECT_TRUE(!decoded || is_refusal || encode(*decoded) == changed);
    }
  }
}

TEST(Messages, AnotherVersionIsNamed) {
  auto bytes = encode(Message(Probe{}));
  bytes[0] = std::byte{2};
  const auto decoded = decode(bytes);
  testing::expect_refused(decoded, ErrorCode::kMismatch);
  EXPECT_EQ(
      decoded.error().message,
      "another process speaks version 2 of the messages of elastic sessions, and this one version 1; install "
      "the same deltawire on all");
}

TEST(Messages, ViewsThatContradictThemselvesAreRefused) {
  const Member low{1, {"10.0.0.1", 1}};
  const Member high{2, {"10.0.0.2", 2}};
  const auto refused = [](const View& view) {
    return !decode(
        encode(Message(Here{Place{1, view.members.empty() ? 0 : view.members[0].id, false, view}})));
  };
  EXPECT_FALSE(refused({1, {low, high}, 3}));
  EXPECT_TRUE(refused({1, {}, 3}));
  EXPECT_TRUE(refused({1, {high, low}, 3}));
  EXPECT_TRUE(refused({1, {low, low}, 3}));
  EXPECT_TRUE(refused({1, {low, high}, 2}));
  EXPECT_TRUE(refused({1, {{-1, {"10.0.0.1", 1}}, high}, 3}));
  EXPECT_TRUE(refused({1, {{1, {"", 1}}}, 3}));
  MemberState state;  // in no view
  EXPECT_FALSE(decode(encode(Message(Meet{state, {}}))));
}

std::string hex_of(Bytes bytes) {
  std::string hex;
  for (const std::byte byte : bytes) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    hex += kDigits[static_cast<std::size_t>(byte) >> 4U];
    hex += kDigits[static_cast<std::size_t>(byte) & 15U];
  }
  return hex;
}

// Pinned: a member of another release must understand them.
TEST(Messages, BytesAreGolden) {
  const auto messages = all_messages();
  for (std::size_t kind = 0; kind < messages.size(); ++kind) {
    EXPECT_EQ(hex_of(encode(messages[kind])), kGolden.at(kind)) << kind;
  }
}

}  // namespace
}  // namespace deltawire::elastic::messages_test
