#include <algorithm>
#include <cerrno>
#include <cstring>

#include "transport/fabric/packet_port.h"

namespace deltawire {
namespace {

std::size_t first_slot(Lane lane) noexcept {
  return static_cast<std::size_t>(lane) * kWindow;
}

std::size_t payload_max(Lane lane) noexcept {
  return lane == Lane::kData ? kPayloadMax : kControlPayloadMax;
}

// Copies as much as fits; returns the number of bytes.
std::size_t copy_pieces(std::span<const iovec> pieces, std::span<std::byte> into) noexcept {
  std::size_t copied = 0;
  for (const iovec& piece : pieces) {
    const std::size_t count = std::min(piece.iov_len, into.size() - copied);
    if (count > 0) std::memcpy(into.data() + copied, piece.iov_base, count);
    copied += count;
  }
  return copied;
}

IoResult ended(const PacketPeer& peer) noexcept {
  if (peer.error == 0) return IoResult::closed();
  return {IoResult::Kind::kError, 0, peer.error, kNever};
}

}  // namespace

IoResult PacketPort::send(int rank, Lane lane, std::span<const iovec> pieces) noexcept {
  const Lock lock(mutex_);
  PacketPeer& peer = at(rank);
  if (peer.gone || peer.last_received) return ended(peer);
  LaneOut& out = peer.out(lane);
  if (!out.has_place()) {
    out.writable.set(false);
    return IoResult::would_block();
  }
  const std::size_t slot = first_slot(lane) + out.sent % kWindow;
  const std::span<std::byte> memory = claim_slot(rank, slot);
  if (memory.empty()) return ended(peer);
  const std::size_t count = copy_pieces(pieces, memory.subspan(kPacketHeaderBytes, payload_max(lane)));
  ++out.sent;
  send_packet(rank, slot, lane == Lane::kData ? Kind::kData : Kind::kControl, count);
  return peer.gone ? ended(peer) : IoResult::moved(count);
}

IoResult PacketPort::recv(int rank, Lane lane, MutBytes into) noexcept {
  const Lock lock(mutex_);
  PacketPeer& peer = at(rank);
  LaneIn& in = peer.in(lane);
  std::size_t copied = 0;
  while (copied < into.size() && !in.empty()) {
    Arrived& front = in.front();
    const std::size_t count = std::min(into.size() - copied, front.end - front.begin);
    std::memcpy(into.data() + copied, peer.room(front.room).data() + front.begin, count);
    copied += count;
    front.begin += count;
    if (front.begin == front.end) use_front(rank, lane);
  }
  if (in.empty() && !in.ended) in.readable.set(false);
  if (copied > 0) return IoResult::moved(copied);
  return in.ended ? ended(peer) : IoResult::would_block();
}

// Frees the front packet's room, and tells its sender in time to keep the window open.
void PacketPort::use_front(int rank, Lane lane) noexcept {
  PacketPeer& peer = at(rank);
  LaneIn& in = peer.in(lane);
  peer.free_rooms.push_back(in.front().room);
  ++in.used;
  if (peer.owes_grants()) send_grants(rank);
}

void PacketPort::close(int rank, Lane lane) noexcept {
  const Lock lock(mutex_);
  LaneIn& in = at(rank).in(lane);
  in.closed = true;
  while (!in.empty()) use_front(rank, lane);
}

void PacketPort::send_grants(int rank) noexcept {
  PacketPeer& peer = at(rank);
  if (peer.gone || peer.last_received) return;
  send_notice(rank, kFirstGrantSlot + peer.grants_sent++ % kGrantSlots, Kind::kGrant);
}

// The slot's memory, once no packet uses it; empty if the peer has just been lost.
std::span<std::byte> PacketPort::claim_slot(int rank, std::size_t slot) noexcept {
  PacketPeer& peer = at(rank);
  if (peer.slot_used[slot] && !fabric_->finish_send(rank, slot)) {
    mark_lost(rank, 0);
    return {};
  }
  peer.slot_used[slot] = true;
  return peer.slot(slot);
}

void PacketPort::send_notice(int rank, std::size_t slot, Kind kind) noexcept {
  if (!claim_slot(rank, slot).empty()) send_packet(rank, slot, kind, 0);
}

// REQUIRES: the slot is claimed, and the payload is in it.
void PacketPort::send_packet(int rank, std::size_t slot, Kind kind, std::size_t payload_bytes) noexcept {
  PacketPeer& peer = at(rank);
  PacketHeader header;
  header.kind = kind;
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  for (std::size_t lane = 0; lane < kLanes; ++lane) {
    header.used[lane] = peer.lanes_in[lane].told = peer.lanes_in[lane].used;
  }
  const std::span<std::byte> packet = peer.slot(slot).first(kPacketHeaderBytes + payload_bytes);
  encode_packet_header(header, packet.first<kPacketHeaderBytes>());
  if (!fabric_->start_send(rank, slot, packet)) mark_lost(rank, 0);
}

PacketPort::Room PacketPort::take_room(int rank) noexcept {
  const Lock lock(mutex_);
  PacketPeer& peer = at(rank);
  if (peer.free_rooms.empty()) return {};
  const std::size_t index = peer.free_rooms.back();
  peer.free_rooms.pop_back();
  return {index, peer.room(index)};
}

void PacketPort::arrived(int rank, const Room& room, std::size_t bytes) noexcept {
  const Lock lock(mutex_);
  PacketPeer& peer = at(rank);
  const std::optional<PacketHeader> header = decode_packet_header(Bytes(room.bytes).first(bytes));
  if (!header) return mark_lost(rank, EBADMSG);
  // After the last packet only answers may follow.
  const bool answer = header->kind == Kind::kGrant || header->kind == Kind::kTaken;
  if ((peer.last_received && !answer) || !peer.take_grants(*header)) return mark_lost(rank, EBADMSG);
  accept(rank, *header, room);
}

void PacketPort::accept(int rank, const PacketHeader& header, const Room& room) noexcept {
  PacketPeer& peer = at(rank);
  switch (header.kind) {
    case Kind::kData: return accept_stream(rank, Lane::kData, header, room);
    case Kind::kControl: return accept_stream(rank, Lane::kControl, header, room);
    case Kind::kHandshake:
      if (peer.handshake) return mark_lost(rank, EBADMSG);
      peer.handshake = Arrived{room.index, kPacketHeaderBytes, kPacketHeaderBytes + header.payload_bytes};
      changed_.notify_all();
      return;
    case Kind::kLast:
      peer.last_received = true;
      peer.end_lanes();
      send_notice(rank, kTakenSlot, Kind::kTaken);
      break;
    case Kind::kTaken: peer.last_taken = true; break;
    case Kind::kGrant: break;
  }
  peer.free_rooms.push_back(room.index);
  if (header.kind != Kind::kGrant) changed_.notify_all();
}

void PacketPort::accept_stream(int rank, Lane lane, const PacketHeader& header, const Room& room) noexcept {
  PacketPeer& peer = at(rank);
  LaneIn& in = peer.in(lane);
  if (in.full() || header.payload_bytes == 0) return mark_lost(rank, EBADMSG);
  in.arrived[in.received % kWindow] = {room.index, kPacketHeaderBytes,
                                       kPacketHeaderBytes + header.payload_bytes};
  ++in.received;
  if (in.closed) {
    use_front(rank, lane);
  } else {
    in.readable.set(true);
  }
}

void PacketPort::lost(int rank, int error) noexcept {
  const Lock lock(mutex_);
  mark_lost(rank, error);
}

void PacketPort::mark_lost(int rank, int error) noexcept {
  PacketPeer& peer = at(rank);
  if (peer.gone) return;
  peer.gone = true;
  // A stream that ended normally stays so.
  if (!peer.last_received) peer.error = error;
  peer.end_lanes();
  changed_.notify_all();
}

}  // namespace deltawire
