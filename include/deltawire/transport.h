// Transports: messages between ranks, several in flight, every wait with a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>

#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Messages between a pair of ranks match by tag; messages with one tag keep their order. A message has at
// most 1 GiB. Messages that come before their receive is posted are kept, up to 64 of them or 64 MiB for each
// peer; beyond that the peer's stream pauses until a receive is posted.
using Tag = std::uint64_t;

// A posted send or receive. 0 is no operation.
enum class Handle : std::uint64_t { kNone = 0 };

// Bytes that crossed this rank's links since the start, message headers and control messages included.
struct Traffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

// Thread rule: any thread may call any member. Progress is made by the transport itself, so that a posted
// message moves while the caller computes; nothing spins.
//
// Failure rule: the first error of any kind (deadline, lost peer, abort here or elsewhere) ends the
// transport: every wait on every rank fails with that error, which names the suspect where one is known.
// Once a wait has returned an error, no posted buffer is touched any more.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const noexcept = 0;
  virtual int world_size() const noexcept = 0;

  // Sends the pieces, in order, as one message. Their memory must stay as it is until wait(handle) returns.
  // REQUIRES: 0 <= peer < world_size, peer != rank. After a failure the handle's wait gives the error.
  virtual Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) = 0;

  // Receives one message into `capacity`; wait gives its length. A longer message is kLimit, and is never
  // written past the end. The memory must stay until wait(handle) returns. Same REQUIRES as post_send.
  virtual Handle post_recv(int peer, Tag tag, MutBytes capacity) = 0;

  // Waits for one operation and forgets it: bytes sent or received, or the error; 0 for Handle::kNone.
  // Passing the deadline is kTimeout: it aborts the transport everywhere and names the rank that the chain of
  // waits ends at.
  virtual Result<std::uint64_t> wait(Handle handle, Deadline deadline) = 0;

  // Whether the operation has ended, well or badly: its wait returns at once. True for Handle::kNone and for
  // an operation that was waited for. Never blocks.
  virtual bool done(Handle handle) const noexcept = 0;

  // Waits until at least one of the operations has ended, or somebody calls wake(); forgets none of them.
  // The first is the one that counts: passing the deadline is kTimeout as in wait(), with the blame for it.
  // Returns at once when there are none. Errors: those of wait().
  virtual Status wait_any(std::span<const Handle> handles, Deadline deadline) = 0;

  // Ends the wait_any that is running, or else the next one, as soon as it begins. One wake ends one
  // wait_any.
  virtual void wake() noexcept = 0;

  // Fails every wait of every rank with `error`; error.suspect kNoSuspect means this rank itself.
  // The first call (here or on another rank) wins; later ones change nothing.
  virtual void abort(const Error& error) noexcept = 0;

  virtual Traffic traffic() const noexcept = 0;
};

}  // namespace deltawire
