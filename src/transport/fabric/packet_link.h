// One lane of a PacketPort to one peer, as a link.
#pragma once

#include "transport/fabric/packet_port.h"

namespace deltawire {

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
  // The port delivers what is on its way before it ends.
  bool delivered() noexcept override { return true; }

 private:
  PacketPort* port_;
  int peer_;
  Lane lane_;
};

}  // namespace deltawire
