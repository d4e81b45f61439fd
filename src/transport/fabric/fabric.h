// What a message library (Gloo, MPI) must do to carry a mesh: transfer packets of bounded length, in order
// for each pair of ranks, between memory that never belongs to the user.
//
// The library moves packets between slots (sending) and rooms (receiving) that a PacketPort owns, not the
// user's buffers, because no library can be told to release a buffer: a matched receive can't be cancelled,
// but nothing may touch the user's memory once a wait has returned an error. So every byte is copied twice,
// as through a socket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

class PacketPort;

class Fabric {
 public:
  virtual ~Fabric() = default;

  // Begins to pass packets to `port`, from its own threads: PacketPort's take_room, arrived and lost. Called
  // once. May throw std::system_error if no thread can be started.
  virtual void start(PacketPort& port) = 0;

  // Starts to send `packet`, which stays unchanged until finish_send(peer, slot) has returned. False: the
  // connection to `peer` is broken for good. Called under the port's lock, from any thread: must not call the
  // port and must not wait for the peer.
  virtual bool start_send(int peer, std::size_t slot, Bytes packet) noexcept = 0;

  // The peer has confirmed the slot's packet: does what the library requires before the slot is used again.
  // Same rules as start_send.
  virtual bool finish_send(int peer, std::size_t slot) noexcept = 0;

  // Ends all threads, and makes no calls into the port afterwards. False: the library may still touch slots
  // or rooms, because part of a packet was missing at the deadline. `drained`: no packet is in flight any
  // more, in either direction.
  virtual bool stop(Deadline deadline, bool drained) noexcept = 0;

  // Whether a mesh should wait at its end until it is drained, and so for all peers' ends, instead of only
  // until they have received everything.
  virtual bool ends_drained() const noexcept = 0;
};

struct FabricMember {
  int rank = 0;
  int world_size = 1;
  std::string settings;     // REQUIRES: checked by check_settings
  std::uint32_t epoch = 0;  // Transport::epoch
};

// A transport over a fabric: the same engine as over sockets. Errors: kTimeout (names the missing ranks),
// kMismatch, kPeerLost, kSystem.
Result<std::unique_ptr<Transport>> connect_fabric(const FabricMember& self, std::unique_ptr<Fabric> fabric,
                                                  Deadline deadline);

}  // namespace deltawire
