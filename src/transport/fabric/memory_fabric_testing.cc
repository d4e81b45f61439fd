#include "transport/fabric/memory_fabric_testing.h"

#include <algorithm>

#include "transport/fabric/packet_port.h"

namespace deltawire::test {

void Switchboard::put(int to, Packet packet) {
  const std::scoped_lock lock(mutex_);
  Mailbox& mailbox = mailboxes_[static_cast<std::size_t>(to)];
  if (!mailbox.closed) mailbox.packets.push_back(std::move(packet));
  changed_.notify_all();
}

bool Switchboard::take(int rank, Packet& packet) {
  std::unique_lock<std::mutex> lock(mutex_);
  Mailbox& mailbox = mailboxes_[static_cast<std::size_t>(rank)];
  changed_.wait(lock, [&mailbox] { return mailbox.closed || !mailbox.packets.empty(); });
  if (mailbox.packets.empty()) return false;
  packet = std::move(mailbox.packets.front());
  mailbox.packets.pop_front();
  return true;
}

void Switchboard::close(int rank) {
  const std::scoped_lock lock(mutex_);
  mailboxes_[static_cast<std::size_t>(rank)].closed = true;
  changed_.notify_all();
}

void MemoryFabric::start(PacketPort& port) {
  receiver_ = std::thread([this, &port] {
    Switchboard::Packet packet;
    while (switchboard_->take(rank_, packet)) {
      if (packet.bytes.empty()) {
        port.lost(packet.from, 0);
        continue;
      }
      const PacketPort::Room room = port.take_room(packet.from);
      if (room.bytes.size() < packet.bytes.size()) {
        port.lost(packet.from, ENOBUFS);
        continue;
      }
      std::ranges::copy(packet.bytes, room.bytes.begin());
      port.arrived(packet.from, room, packet.bytes.size());
    }
  });
}

bool MemoryFabric::start_send(int peer, std::size_t, Bytes packet) noexcept {
  switchboard_->put(peer, {rank_, {packet.begin(), packet.end()}});
  return true;
}

bool MemoryFabric::finish_send(int, std::size_t) noexcept {
  return true;
}

bool MemoryFabric::stop(Deadline, bool) noexcept {
  switchboard_->close(rank_);
  if (receiver_.joinable()) receiver_.join();
  return true;
}

}  // namespace deltawire::test
