// Packet headers: what is written is read, and nothing else is.
#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "base/little_endian.h"
#include "transport/fabric/packet_peer.h"

namespace deltawire::packet_test {
namespace {

std::vector<std::byte> packet_of(const PacketHeader& header, std::size_t bytes) {
  std::vector<std::byte> packet(bytes);
  encode_packet_header(header, std::span(packet).first<kPacketHeaderBytes>());
  return packet;
}

const PacketHeader kExample{PacketHeader::Kind::kControl, 100, {0xFFFFFFFE, 3}};

TEST(Packet, HeaderComesBackAsItWas) {
  const std::vector<std::byte> packet = packet_of(kExample, 200);
  const auto header = decode_packet_header(packet);
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->kind, kExample.kind);
  EXPECT_EQ(header->payload_bytes, kExample.payload_bytes);
  EXPECT_EQ(header->used, kExample.used);
}

TEST(Packet, NoFlippedBitIsAccepted) {
  const std::vector<std::byte> packet = packet_of(kExample, kPacketHeaderBytes + 100);
  for (std::size_t bit = 0; bit < 8 * kPacketHeaderBytes; ++bit) {
    std::vector<std::byte> flipped = packet;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_packet_header(flipped).has_value()) << "bit " << bit;
  }
}

TEST(Packet, ShorterThanItsPayloadIsRefused) {
  const std::vector<std::byte> packet = packet_of(kExample, kPacketHeaderBytes + 100);
  EXPECT_TRUE(decode_packet_header(packet).has_value());
  for (std::size_t length = 0; length < packet.size(); ++length) {
    EXPECT_FALSE(decode_packet_header(Bytes(packet).first(length)).has_value()) << length;
  }
}

TEST(Packet, UnknownKindsAreRefusedThoughTheChecksumIsRight) {
  for (const std::uint32_t kind : {0u, 7u, 255u, 0x101u}) {
    std::vector<std::byte> packet = packet_of(kExample, kPacketHeaderBytes + 100);
    store_le(packet.data() + 8, kind);
    store_le(packet.data() + 4, crc32c(Bytes(packet).subspan(8, 16)));
    EXPECT_FALSE(decode_packet_header(packet).has_value()) << "kind " << kind;
  }
}

}  // namespace
}  // namespace deltawire::packet_test
