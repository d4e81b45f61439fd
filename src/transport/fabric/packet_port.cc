#include "transport/fabric/packet_port.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/little_endian.h"
#include "base/os_error.h"
#include "transport/mesh/make_mesh.h"
#include "transport/mesh/settings.h"

namespace deltawire {
namespace {

// A handshake's payload: u32 rank, u32 world size, u32 epoch, settings.
constexpr std::size_t kHandshakeFixedBytes = 12;

std::string name_ranks(const std::vector<int>& ranks) {
  std::string names = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) names += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return names;
}

// One lane to one peer, as a link.
class PacketLink final : public Link {
 public:
  PacketLink(PacketPort& port, int peer, Lane lane) noexcept : port_(&port), peer_(peer), lane_(lane) {}
  ~PacketLink() override { port_->close(peer_, lane_); }
  PacketLink(const PacketLink&) = delete;
  PacketLink& operator=(const PacketLink&) = delete;

  int fd() const noexcept override { return port_->readable_fd(peer_, lane_); }
  int send_fd() const noexcept override { return port_->writable_fd(peer_, lane_); }
  IoResult send(std::span<const iovec> pieces) noexcept override { return port_->send(peer_, lane_, pieces); }
  IoResult recv(MutBytes into) noexcept override { return port_->recv(peer_, lane_, into); }
  // The port delivers what is in flight before it ends.
  bool delivered() noexcept override { return true; }

 private:
  PacketPort* port_;
  int peer_;
  Lane lane_;
};

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

PacketPort::PacketPort(int rank, int world_size, std::unique_ptr<Fabric> fabric)
    : rank_(rank), fabric_(std::move(fabric)) {
  peers_.resize(static_cast<std::size_t>(world_size));
  for (int i = 0; i < world_size; ++i) {
    if (i != rank) peers_[static_cast<std::size_t>(i)] = std::make_unique<PacketPeer>();
  }
}

Result<std::unique_ptr<PacketPort>> PacketPort::open(int rank, int world_size,
                                                     std::unique_ptr<Fabric> fabric) {
  std::unique_ptr<PacketPort> port(new PacketPort(rank, world_size, std::move(fabric)));
  const bool has_descriptors = [&] {
    const MutexLock lock(port->mutex_);
    return port->all_peers([](const PacketPeer& peer) { return peer.ok(); });
  }();
  if (!has_descriptors) {
    return fail(ErrorCode::kSystem,
                "eventfd: " + os_error_text(errno) + "; is the limit of open files high enough?");
  }
  try {
    port->fabric_->start(*port);
  } catch (const std::system_error& error) {
    (void)port->fabric_->stop(Clock::now(), false);
    return no_thread("the transport", error);
  }
  port->started_ = true;
  return port;
}

PacketPort::~PacketPort() {
  if (!started_) return;
  const Deadline leave_by = Clock::now() + kFarewellTime;
  bool drained = false;
  {
    MutexLock lock(mutex_);
    for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
      if (rank != rank_ && !at(rank).gone) send_notice(rank, kLastSlot, Kind::kLast);
    }
    const bool thoroughly = fabric_->ends_drained();
    changed_.wait_until(lock.standard(), leave_by, [this, thoroughly]() DELTAWIRE_REQUIRES(mutex_) {
      return all_peers([thoroughly](const PacketPeer& peer) {
        return peer.gone || (thoroughly ? peer.drained() : peer.needs_nothing());
      });
    });
    drained = all_peers([](const PacketPeer& peer) { return peer.drained(); });
  }
  if (fabric_->stop(leave_by, drained)) return;
  // A frozen peer holds half a packet, and until it goes on the library may touch the memory: leak it.
  [[maybe_unused]] const Fabric* fabric = fabric_.release();
  for (auto& peer : peers_) {
    if (!peer) continue;
    [[maybe_unused]] const std::byte* slots = peer->slots.release();
    [[maybe_unused]] const std::byte* rooms = peer->rooms.release();
  }
}

Status PacketPort::greet(const std::string& settings, std::uint32_t epoch, Deadline deadline) {
  const Deadline begin = Clock::now();
  MutexLock lock(mutex_);
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank == rank_) continue;
    std::byte* const payload = claim_slot(rank, kHandshakeSlot).data() + kPacketHeaderBytes;
    store_le(payload, static_cast<std::uint32_t>(rank_));
    store_le(payload + 4, static_cast<std::uint32_t>(peers_.size()));
    store_le(payload + 8, epoch);
    if (!settings.empty()) std::memcpy(payload + kHandshakeFixedBytes, settings.data(), settings.size());
    send_packet(rank, kHandshakeSlot, Kind::kHandshake, kHandshakeFixedBytes + settings.size());
  }
  const bool met = changed_.wait_until(lock.standard(), deadline, [this]() DELTAWIRE_REQUIRES(mutex_) {
    return all_peers([](const PacketPeer& peer) { return peer.handshake || peer.gone; });
  });
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank == rank_) continue;
    if (Status judged = check_handshake(rank, settings, epoch); !judged) return judged;
  }
  if (met) return {};
  return tl::unexpected<Error>(
      missing_handshakes(std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin)));
}

Status PacketPort::check_handshake(int rank, const std::string& settings, std::uint32_t epoch) {
  PacketPeer& peer = at(rank);
  if (!peer.handshake) {
    if (!peer.gone) return {};  // missing_handshakes() names it
    return fail(
        ErrorCode::kPeerLost,
        "rank " + std::to_string(rank) + " ended its connection before its first packet; see its own log",
        rank);
  }
  const Arrived place = *peer.handshake;
  const Bytes payload = Bytes(peer.room(place.room)).subspan(place.begin, place.end - place.begin);
  const bool whole =
      payload.size() >= kHandshakeFixedBytes && payload.size() <= kHandshakeFixedBytes + kSettingsMax;
  if (!whole || load_le<std::uint32_t>(payload.data()) != static_cast<std::uint32_t>(rank) ||
      load_le<std::uint32_t>(payload.data() + 4) != peers_.size()) {
    return fail(ErrorCode::kMismatch,
                "rank " + std::to_string(rank) +
                    " sent a handshake for another world size or version; start all ranks " +
                    "with the same world size, and install the same version of deltawire everywhere",
                rank);
  }
  const Bytes text = payload.subspan(kHandshakeFixedBytes);
  std::string others(reinterpret_cast<const char*>(text.data()), text.size());
  const auto others_epoch = load_le<std::uint32_t>(payload.data() + 8);
  peer.free_rooms.push_back(place.room);
  if (others_epoch != epoch) {
    return tl::unexpected<Error>(epoch_mismatch(rank, others_epoch, rank_, epoch));
  }
  if (others == settings) return {};
  return tl::unexpected<Error>(settings_mismatch(rank, others, rank_, settings));
}

Error PacketPort::missing_handshakes(std::chrono::milliseconds waited) {
  std::vector<int> missing;
  for (int rank = 0; rank < static_cast<int>(peers_.size()); ++rank) {
    if (rank != rank_ && !at(rank).handshake) missing.push_back(rank);
  }
  return {ErrorCode::kTimeout,
          "rank " + std::to_string(rank_) + " waited " + std::to_string(waited.count()) + " ms for " +
              name_ranks(missing) + " to connect; did all ranks start, with the same rendezvous?",
          missing.front()};
}

std::vector<PeerLinks> PacketPort::make_links() {
  const MutexLock lock(mutex_);
  std::vector<PeerLinks> links(peers_.size());
  for (std::size_t i = 0; i < links.size(); ++i) {
    const int rank = static_cast<int>(i);
    if (rank == rank_) continue;
    links[i].data = std::make_unique<PacketLink>(*this, rank, Lane::kData);
    links[i].control = std::make_unique<PacketLink>(*this, rank, Lane::kControl);
  }
  return links;
}

Result<std::unique_ptr<Transport>> connect_fabric(const FabricMember& self, std::unique_ptr<Fabric> fabric,
                                                  Deadline deadline) {
  auto port = PacketPort::open(self.rank, self.world_size, std::move(fabric));
  if (!port) return forward_error(port);
  if (Status met = (*port)->greet(self.settings, self.epoch, deadline); !met) return forward_error(met);
  std::vector<PeerLinks> links = (*port)->make_links();
  return make_mesh({self.rank, self.epoch}, std::move(links), LinkOptions{}, std::move(*port));
}

IoResult PacketPort::send(int rank, Lane lane, std::span<const iovec> pieces) noexcept {
  const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
  PacketPeer& peer = at(rank);
  if (peer.free_rooms.empty()) return {};
  const std::size_t index = peer.free_rooms.back();
  peer.free_rooms.pop_back();
  return {index, peer.room(index)};
}

void PacketPort::arrived(int rank, const Room& room, std::size_t bytes) noexcept {
  const MutexLock lock(mutex_);
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
  const MutexLock lock(mutex_);
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
