#include "transport/gloo/gloo_fabric.h"

#include <cerrno>
#include <chrono>
#include <deque>
#include <exception>

#include "transport/process/signals.h"

namespace deltawire {
namespace {

constexpr std::uint64_t kGlooSlot = 0;  // Gloo's word for a tag
constexpr std::size_t kPostedAhead = 4;
static_assert(kRooms >= kLanes * kWindow + kPostedAhead + 1);

// Gloo must not time out, as it would close every connection: the engine handles deadlines. (Gloo adds this
// to the current time, so it can't be the largest possible number.)
constexpr std::chrono::milliseconds kNoTimeLimit = std::chrono::hours(24 * 365);
// For the end of a send whose packet has arrived: another of Gloo's threads only has to report it.
constexpr std::chrono::milliseconds kAtOnce{2000};

}  // namespace

GlooFabric::GlooFabric(std::shared_ptr<gloo::Context> context)
    : context_(std::move(context)), peers_(static_cast<std::size_t>(context_->size)) {}

GlooFabric::~GlooFabric() {
  (void)stop(Clock::now(), false);
}

void GlooFabric::start(PacketPort& port) {
  const auto buffer_over = [this](std::span<std::byte> memory) {
    return context_->createUnboundBuffer(memory.data(), memory.size());
  };
  const SignalsHeldBack no_signals;
  for (int rank = 0; rank < context_->size; ++rank) {
    if (rank == context_->rank) continue;
    for (std::size_t i = 0; i < kSlots; ++i) at(rank).slots[i] = buffer_over(port.slot(rank, i));
    for (std::size_t i = 0; i < kRooms; ++i) at(rank).rooms[i] = buffer_over(port.room(rank, i));
    at(rank).receiver = std::thread([this, &port, rank] { receive_from(port, rank); });
  }
}

void GlooFabric::receive_from(PacketPort& port, int rank) {
  Peer& peer = at(rank);
  try {
    std::deque<PacketPort::Room> posted;
    while (!stopping_) {
      while (posted.size() < kPostedAhead) {
        const PacketPort::Room room = port.take_room(rank);
        if (room.bytes.empty()) break;
        peer.rooms[room.index]->recv(rank, kGlooSlot);
        posted.push_back(room);
      }
      // The windows guarantee more rooms than packets in flight.
      if (posted.empty()) return port.lost(rank, EBADMSG);
      // Only stop() aborts it, and it returns false; at any other time a spurious abort would lose a packet.
      if (!peer.rooms[posted.front().index]->waitRecv(kNoTimeLimit)) return;
      const PacketPort::Room room = posted.front();
      posted.pop_front();
      port.arrived(rank, room, room.bytes.size());
    }
  } catch (const std::exception&) {
    if (!stopping_) port.lost(rank, 0);
  }
}

bool GlooFabric::start_send(int rank, std::size_t slot, Bytes packet) noexcept {
  const BrokenPipesHeldBack no_signal;
  try {
    at(rank).slots[slot]->send(rank, kGlooSlot, 0, packet.size());
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool GlooFabric::finish_send(int rank, std::size_t slot) noexcept {
  try {
    return at(rank).slots[slot]->waitSend(kAtOnce);
  } catch (const std::exception&) {
    return false;
  }
}

// Once the connections are closed, Gloo releases all memory, whatever the peers do.
bool GlooFabric::stop(Deadline, bool) noexcept {
  if (stopping_.exchange(true)) return true;
  const BrokenPipesHeldBack no_signal;
  context_->closeConnections();
  for (Peer& peer : peers_) {
    for (Buffer& room : peer.rooms) {
      if (room) room->abortWaitRecv();
    }
    if (peer.receiver.joinable()) peer.receiver.join();
  }
  peers_.clear();
  context_.reset();
  return true;
}

}  // namespace deltawire
