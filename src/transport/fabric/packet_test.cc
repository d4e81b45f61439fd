// Packet headers: what is written is read, and nothing else is.
#include "transport/fabric/packet.h"

#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"

namespace deltawire {
namespace {

std::vector<std::byte> packet_of(const PacketHeader& header, std::size_t bytes) {
  std::vector<std::byte> packet(bytes);
  encode_packet_header(header, std::span(packet).first<kPacketHeaderBytes>());
  return packet;
}

const PacketHeader kExample{0xA1B2C3D4, PacketHeader::Kind::kControl, 100, {0xFFFFFFFE, 3}};

TEST(Packet, HeaderComesBackAsItWas) {
  const std::vector<std::byte> packet = packet_of(kExample, 200);
  const auto header = decode_packet_header(packet);
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->session, kExample.session);
  EXPECT_EQ(header->kind, kExample.kind);
  EXPECT_EQ(header->payload_bytes, kExample.payload_bytes);
  EXPECT_EQ(header->used, kExample.used);
}

TEST(Packet, NoFlippedBitIsAccepted) {
  const std::vector<std::byte> packet = packet_of(kExample, 132);
  for (std::size_t bit = 0; bit < 8 * kPacketHeaderBytes; ++bit) {
    std::vector<std::byte> flipped = packet;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_packet_header(flipped).has_value()) << "bit " << bit;
  }
}

TEST(Packet, ShorterThanItsPayloadIsRefused) {
  const std::vector<std::byte> packet = packet_of(kExample, 132);
  EXPECT_TRUE(decode_packet_header(packet).has_value());
  for (std::size_t length = 0; length < packet.size(); ++length) {
    EXPECT_FALSE(decode_packet_header(Bytes(packet).first(length)).has_value()) << length;
  }
}

TEST(Packet, ReservedBytesAndUnknownKindsAreRefusedThoughTheChecksumIsRight) {
  for (const std::size_t at : {std::size_t{13}, std::size_t{14}, std::size_t{15}, std::size_t{28}}) {
    std::vector<std::byte> packet = packet_of(kExample, 132);
    packet[at] = std::byte{1};
    store_le(packet.data() + 4, crc32c(Bytes(packet).subspan(8, 24)));
    EXPECT_FALSE(decode_packet_header(packet).has_value()) << "byte " << at;
  }
  for (const unsigned kind : {0u, 7u, 255u}) {
    std::vector<std::byte> packet = packet_of(kExample, 132);
    packet[12] = static_cast<std::byte>(kind);
    store_le(packet.data() + 4, crc32c(Bytes(packet).subspan(8, 24)));
    EXPECT_FALSE(decode_packet_header(packet).has_value()) << "kind " << kind;
  }
}

}  // namespace
}  // namespace deltawire
