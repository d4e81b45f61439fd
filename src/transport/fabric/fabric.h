// What a message library (Gloo, MPI) must do to carry a mesh: packets of bounded length, in order for each
// pair of ranks, between memory that never belongs to the user.
//
// The library moves packets between slots (sending) and rooms (receiving) that a PacketPort owns, and not
// the user's buffers themselves, because no library can be told to let go of a buffer: a receive that has
// been matched can't be cancelled, and yet nobody may touch a user's memory once his wait has returned an
// error. So a byte is copied twice, as through a socket.
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

  // Begins to hand packets to `port`, from threads of its own: PacketPort's take_room, arrived and lost.
  // Called once. May throw std::system_error when there is no thread to be had.
  virtual void start(PacketPort& port) = 0;

  // Starts to send `packet`, which stays as it is until finish_send(peer, slot) has returned. False: the
  // way to `peer` is broken, now and for good. Called under the port's lock, from any thread: must not call
  // the port and must not wait for the peer.
  virtual bool start_send(int peer, std::size_t slot, Bytes packet) noexcept = 0;

  // The slot's packet has arrived at the peer, as the peer itself says: does what the library asks for
  // before the slot is used again. Same rules as start_send.
  virtual bool finish_send(int peer, std::size_t slot) noexcept = 0;

  // Ends all threads. No call into the port after it. False: the library may still touch slots or rooms,
  // as a peer has taken or given only part of a packet by the deadline. `drained`: no packet is on its way
  // any more, from or to anybody.
  virtual bool stop(Deadline deadline, bool drained) noexcept = 0;

  // Whether the end of a mesh should wait until it's drained, and so for all peers' ends, instead of only
  // until they have everything.
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
