// Doors: how processes of a job talk outside a mesh, for example to agree on who belongs to the next one, or
// to read new weights. A door listens for as long as its process takes part in the job; a line is one
// connection to it.
//
// Both ends prove that they know the job's token, and lines that leave the machine are encrypted, as between
// the ranks of a mesh (docs/reference/security.md). Doors have a key of their own, derived from the token, so
// that a connection for a mesh is a stranger at a door, and the other way round.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "deltawire/connect.h"
#include "deltawire/export.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"
#include "deltawire/transport.h"

namespace deltawire {

struct DoorOptions {
  Token token{};                              // the job's
  Encryption encryption = Encryption::kAuto;  // equal at both ends
};

// Messages in both directions. Thread rule: one thread at a time, except hang_up().
class DELTAWIRE_API Line {
 public:
  virtual ~Line() = default;

  // The other end's address. For a caller from this machine it may be the host of the door, with port 0.
  virtual Endpoint peer() const = 0;

  // Sends one message; after an error the line is of no use. kTimeout, kPeerLost; kLimit beyond
  // kMessageBytesMax.
  virtual Status send(Bytes message, Deadline deadline) = 0;

  // The next message. After kTimeout a later call continues. kPeerLost: the other end has hung up or is
  // dead. kLimit: the message is longer than `bytes_max`. Memory is taken for what has arrived.
  virtual Result<std::vector<std::byte>> receive(std::size_t bytes_max, Deadline deadline) = 0;
  // Of messages that have arrived, and of the one that is arriving: a slow peer and a silent one differ.
  virtual std::uint64_t bytes_received() const noexcept = 0;

  virtual LineState state() const = 0;
  virtual bool is_encrypted() const noexcept = 0;

  // Ends the line; a thread that sends or receives on it fails at once. Thread rule: any thread.
  virtual void hang_up() noexcept = 0;
};

// Thread rule: one thread at a time.
class DELTAWIRE_API Door {
 public:
  virtual ~Door() = default;
  virtual Endpoint endpoint() const = 0;

  // The next caller that has proved that it knows the token; others are turned away, and keep nobody waiting.
  // kTimeout: nobody has called. kSystem: no descriptors left.
  virtual Result<std::unique_ptr<Line>> answer(Deadline deadline) = 0;
};

// `listener`: of listen_tcp or listen_for. Errors: kInvalidArgument, kSystem.
DELTAWIRE_API Result<std::unique_ptr<Door>> open_door(std::unique_ptr<Listener> listener,
                                                      const DoorOptions& options);

// Calls at a door. kPeerLost, at once: nobody listens there. kUnauthorized: whoever does has another token,
// or is no door. kMismatch: another encryption. kTimeout: no answer. kAborted: `interrupted`, which is called
// a few times a second on this thread, has returned true.
DELTAWIRE_API Result<std::unique_ptr<Line>> call_at_door(const Endpoint& endpoint, const DoorOptions& options,
                                                         Deadline deadline,
                                                         const std::function<bool()>& interrupted = {});

}  // namespace deltawire
