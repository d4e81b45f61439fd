// A fabric for tests: packets pass through queues between threads of one process.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/fabric/fabric.h"

namespace deltawire::test {

// Delivers packets between all ranks' fabrics.
class Switchboard {
 public:
  explicit Switchboard(int world_size) : mailboxes_(static_cast<std::size_t>(world_size)) {}

  struct Packet {
    int from = 0;
    std::vector<std::byte> bytes;  // empty: the connection from that rank is broken
  };
  void put(int to, Packet packet);
  // The next packet for `rank`; false once it's closed and empty.
  bool take(int rank, Packet& packet);
  void close(int rank);

 private:
  struct Mailbox {
    std::deque<Packet> packets;
    bool closed = false;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Mailbox> mailboxes_;
};

class MemoryFabric final : public Fabric {
 public:
  MemoryFabric(std::shared_ptr<Switchboard> switchboard, int rank)
      : switchboard_(std::move(switchboard)), rank_(rank) {}
  ~MemoryFabric() override { (void)stop(Clock::now(), false); }
  MemoryFabric(const MemoryFabric&) = delete;
  MemoryFabric& operator=(const MemoryFabric&) = delete;

  void start(PacketPort& port) override;
  bool start_send(int peer, std::size_t slot, Bytes packet) noexcept override;
  bool finish_send(int peer, std::size_t slot) noexcept override;
  bool stop(Deadline deadline, bool drained) noexcept override;
  bool ends_drained() const noexcept override { return false; }

 private:
  std::shared_ptr<Switchboard> switchboard_;
  int rank_;
  std::thread receiver_;
};

}  // namespace deltawire::test
