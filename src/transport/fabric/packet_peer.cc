#include "transport/fabric/packet_peer.h"

#include <algorithm>

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

}  // namespace deltawire
