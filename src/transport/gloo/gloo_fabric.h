// Packets over Gloo's unbound buffers.
//
// Each peer has a receiving thread, because Gloo only has blocking waits, and a few receives posted ahead, so
// that a packet can leave without a round trip. A posted receive always has room for the largest packet: a
// longer message would abort the process inside Gloo.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include <gloo/context.h>
#include <gloo/transport/unbound_buffer.h>

#include "transport/fabric/fabric.h"
#include "transport/fabric/packet_peer.h"
#include "transport/fabric/packet_port.h"

namespace deltawire {

class GlooFabric final : public Fabric {
 public:
  // REQUIRES: `context` is connected.
  explicit GlooFabric(std::shared_ptr<gloo::Context> context);
  ~GlooFabric() override;
  GlooFabric(const GlooFabric&) = delete;
  GlooFabric& operator=(const GlooFabric&) = delete;

  void start(PacketPort& port) override;
  bool start_send(int peer, std::size_t slot, Bytes packet) noexcept override;
  bool finish_send(int peer, std::size_t slot) noexcept override;
  bool stop(Deadline deadline, bool drained) noexcept override;
  bool ends_drained() const noexcept override { return false; }  // connections end one by one

 private:
  using Buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

  struct Peer {
    std::array<Buffer, kSlots> slots;
    std::array<Buffer, kRooms> rooms;
    std::thread receiver;
  };

  void receive_from(PacketPort& port, int peer);
  Peer& at(int peer) noexcept { return peers_[static_cast<std::size_t>(peer)]; }

  std::shared_ptr<gloo::Context> context_;
  std::vector<Peer> peers_;
  std::atomic<bool> stopping_{false};
};

}  // namespace deltawire
