#include "transport/fabric/packet_peer.h"

#include <algorithm>

#include "base/crc32c.h"
#include "base/little_endian.h"

namespace deltawire {

namespace {

constexpr std::size_t kSmallSlotBytes = 2048;
static_assert(kControlPayloadMax + kPacketHeaderBytes <= kSmallSlotBytes);

}  // namespace

PacketPeer::PacketPeer()
    : slots(new std::byte[kWindow * kPacketBytes + (kSlots - kWindow) * kSmallSlotBytes]),
      rooms(new std::byte[kRooms * kPacketBytes]) {
  free_rooms.reserve(kRooms);
  for (std::size_t room = kRooms; room > 0; --room) free_rooms.push_back(room - 1);
}

bool PacketPeer::ok() const noexcept {
  return std::ranges::all_of(lanes_out, [](const LaneOut& lane) { return lane.writable.ok(); }) &&
         std::ranges::all_of(lanes_in, [](const LaneIn& lane) { return lane.readable.ok(); });
}

// The data lane's slots come first, and they alone are large.
std::span<std::byte> PacketPeer::slot(std::size_t index) noexcept {
  if (index < kWindow) return {slots.get() + index * kPacketBytes, kPacketBytes};
  return {slots.get() + kWindow * kPacketBytes + (index - kWindow) * kSmallSlotBytes, kSmallSlotBytes};
}

bool PacketPeer::take_grants(const PacketHeader& header) noexcept {
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    LaneOut& out = lanes_out[lane];
    const std::uint32_t news = header.used[lane] - out.granted;
    if (news > out.sent - out.granted) return false;
    if (news == 0) continue;
    out.granted = header.used[lane];
    out.writable.set(true);
  }
  return true;
}

bool PacketPeer::owes_grants() const noexcept {
  return std::ranges::any_of(lanes_in, [](const LaneIn& in) { return in.used - in.told >= kWindow / 2; });
}

void PacketPeer::end_lanes() noexcept {
  for (LaneIn& in : lanes_in) {
    in.ended = true;
    in.readable.set(true);
  }
  for (LaneOut& out : lanes_out) out.writable.set(true);
}

namespace {

constexpr std::uint32_t kPacketMagic = 0x50445744;  // "DWDP" on the wire
constexpr std::size_t kPacketCrcAt = 4;
constexpr std::size_t kPacketKindAt = 8;
constexpr std::size_t kPayloadAt = 12;
constexpr std::size_t kUsedAt = 16;

}  // namespace

void encode_packet_header(const PacketHeader& header,
                          std::span<std::byte, kPacketHeaderBytes> packet) noexcept {
  std::byte* const at = packet.data();
  store_le(at, kPacketMagic);
  store_le(at + kPacketKindAt, static_cast<std::uint32_t>(header.kind));
  store_le(at + kPayloadAt, header.payload_bytes);
  for (std::size_t lane = 0; lane < kLanes; ++lane) store_le(at + kUsedAt + 4 * lane, header.used[lane]);
  store_le(at + kPacketCrcAt, crc32c(packet.subspan(kPacketKindAt)));
}

std::optional<PacketHeader> decode_packet_header(Bytes packet) noexcept {
  if (packet.size() < kPacketHeaderBytes) return std::nullopt;
  const Bytes bytes = packet.first(kPacketHeaderBytes);
  const std::byte* const at = bytes.data();
  if (load_le<std::uint32_t>(at) != kPacketMagic) return std::nullopt;
  if (load_le<std::uint32_t>(at + kPacketCrcAt) != crc32c(bytes.subspan(kPacketKindAt))) return std::nullopt;
  const auto kind = load_le<std::uint32_t>(at + kPacketKindAt);
  const bool known = kind >= static_cast<std::uint32_t>(PacketHeader::Kind::kHandshake) &&
                     kind <= static_cast<std::uint32_t>(PacketHeader::Kind::kTaken);
  if (!known) return std::nullopt;
  PacketHeader header;
  header.kind = static_cast<PacketHeader::Kind>(kind);
  header.payload_bytes = load_le<std::uint32_t>(at + kPayloadAt);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    header.used[lane] = load_le<std::uint32_t>(at + kUsedAt + 4 * lane);
  }
  if (header.payload_bytes > packet.size() - kPacketHeaderBytes) return std::nullopt;
  return header;
}

}  // namespace deltawire
