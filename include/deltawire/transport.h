// Transports: messages between ranks, several in flight, every wait with a deadline.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "deltawire/export.h"
#include "deltawire/rank_names.h"
#include "deltawire/result.h"
#include "deltawire/tensor.h"

namespace deltawire {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// A longer message is kLimit.
inline constexpr std::uint64_t kMessageBytesMax = std::uint64_t{1} << 30;

// Memory that all ranks of a mesh read where it lies; the library's own.
class SharedAreas;

// Messages between a pair of ranks match by tag; messages with one tag keep their order. Messages that come
// before their receive is posted are kept, up to 64 of them or 64 MiB for each peer; beyond that the peer's
// stream pauses until a receive is posted.
using Tag = std::uint64_t;

// A posted send or receive. 0 is no operation.
enum class Handle : std::uint64_t { kNone = 0 };

// A rank's vote for a step: it has all of the step's results, and this is their digest.
struct Ballot {
  std::uint64_t step = 0;
  std::uint64_t digest = 0;  // of the results

  bool operator==(const Ballot&) const = default;
};

// The last step that counts (docs/design/commit.md).
struct LastCommit {
  std::uint64_t step = kNoStep;  // the last one for which all ballots were equal; kNoStep before the first
  std::vector<int> unheard;      // after a failure: ranks that have not confirmed it
};

// Bytes that crossed this rank's links since the start, message headers and control messages included, and
// bytes that others read where they lie.
struct Traffic {
  std::uint64_t bytes_sent = 0;
  std::uint64_t bytes_received = 0;
};

// What the system knows of a connection; all of it is empty where it is no TCP.
struct LineState {
  std::chrono::microseconds round_trip{};  // the shortest seen; 0: unknown
  std::string congestion_control{};        // as the kernel calls it, "cubic" or "bbr"
  std::uint64_t bytes_sent = 0;            // those that were sent again included
  std::uint64_t bytes_resent = 0;
  std::uint32_t segment_bytes = 0;  // most of a packet's payload
  int streams = 1;                  // connections that carry the messages
};

// Thread rule: any thread may call any member. The transport makes progress on its own, so a posted message
// is transferred while the caller computes; nothing spins.
//
// Failure rule: the first error of any kind (deadline, lost peer, abort here or elsewhere) ends the
// transport: every wait on every rank fails with that error, which names the suspect where one is known.
// Once a wait has returned an error, no posted buffer is touched any more. Optional ranks (set_optional) are
// the exception: their failures end only the operations with them.
class DELTAWIRE_API Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const noexcept = 0;
  virtual int world_size() const noexcept = 0;

  // The membership epoch: a launcher gives each set of ranks another one. Ranks compare it when they connect,
  // so a rank of another set can't join, and messages don't carry it. It never changes within a mesh.
  virtual std::uint32_t epoch() const noexcept = 0;

  // How errors call its ranks; the errors' own fields are ranks of this mesh.
  virtual const RankNames& names() const noexcept { return RankNames::plain(); }

  // Sends the pieces, in order, as one message. Their memory must stay as it is until wait(handle) returns.
  // REQUIRES: 0 <= peer < world_size, peer != rank. After a failure the handle's wait gives the error.
  virtual Handle post_send(int peer, Tag tag, std::span<const Bytes> pieces) = 0;

  // Receives one message into `capacity`; wait gives its length. A longer message is kLimit, and is never
  // written past the end. The memory must stay until wait(handle) returns. Same REQUIRES as post_send.
  virtual Handle post_recv(int peer, Tag tag, MutBytes capacity) = 0;

  // Waits for one operation and forgets it: bytes sent or received, or the error; 0 for Handle::kNone.
  // Passing the deadline is kTimeout: it aborts the transport everywhere and names the rank that the chain of
  // waits ends at. A wait that began late may take a second longer.
  virtual Result<std::uint64_t> wait(Handle handle, Deadline deadline) = 0;

  // Whether the operation has ended, well or badly: its wait returns at once. True for Handle::kNone and for
  // an operation that was waited for. Never blocks.
  virtual bool done(Handle handle) const noexcept = 0;

  // Waits until at least one of the operations has ended, or another thread calls wake(); forgets none of
  // them. Passing the deadline is kTimeout as in wait(); the first operation decides which rank is blamed.
  // Returns at once if there are none. Errors: those of wait().
  virtual Status wait_any(std::span<const Handle> handles, Deadline deadline) = 0;

  // Ends the running wait_any or, if there is none, the next one as soon as it begins. One wake ends one
  // wait_any.
  virtual void wake() noexcept = 0;

  // How long a wait may last, from its beginning, for a rank that is alive but has not arrived at this step
  // (it evaluates, or loads data). A time that ends before the wait's deadline, such as 0, the default, has
  // no effect. For ranks that don't answer, and messages of ranks that have arrived, only the deadline
  // counts.
  virtual void set_arrival_timeout(std::chrono::milliseconds timeout) = 0;

  // Lets these ranks depart while the others continue: a failure that one of them causes (its death, its
  // abort, malformed bytes, a deadline that blames it) only ends the operations with that rank, whose waits
  // return the error. Only the other ranks, the *required* ones, decide a drop; each broadcasts it, also to
  // the dropped rank, on which every wait then fails. Messages of a dropped rank are ignored. Other waits
  // start over at the drop, for as long as this rank's longest wait so far. Votes are no longer possible
  // (kState). All ranks must name the same ones, before their first operation; a drop before that on some
  // rank ends the transport. REQUIRES: 0 <= rank < world_size, for each.
  virtual void set_optional(std::span<const int> ranks) = 0;

  // Why an optional rank was dropped; nothing for one that was not.
  virtual std::optional<Error> departure_of(int rank) const = 0;

  // Drops an optional rank, on all ranks, e.g. after a malformed message. If it is not optional, or this rank
  // is optional itself, this is abort(error).
  virtual void drop(int rank, const Error& error) noexcept = 0;

  // This rank begins a bucket of this step. Other ranks that ask whether it has arrived get this as the
  // answer. The first call, and any that does not continue with the next step, is compared: ranks that are at
  // another step fail with kMismatch.
  virtual void arrive(std::uint64_t step) = 0;

  // Votes for a step, and waits for all ranks' ballots. Returns them in rank order, valid until this rank's
  // next vote. If they are equal, the step is committed. If the mesh fails meanwhile, the surviving ranks
  // agree on whether it is committed (docs/design/commit.md): if so, vote returns the ballots, otherwise the
  // error, whose last_committed_step is the step before. One vote at a time. Passing the deadline is kTimeout
  // as in wait(); settling may take 3 s more. std::bad_alloc: the step does not count.
  virtual Result<std::span<const Ballot>> vote(const Ballot& ballot, Deadline deadline) = 0;

  // After a failure it waits until the surviving ranks have reported their last step, which takes
  // milliseconds, and up to 3 s for those that don't answer. The step is then final, unless a vote of this
  // rank is still waiting; `unheard` shrinks as ranks answer later.
  virtual LastCommit last_commit() const = 0;

  // Fails every wait of every rank with `error`; error.suspect kNoSuspect means this rank itself.
  // The first call (here or on another rank) wins; later ones change nothing.
  virtual void abort(const Error& error) noexcept = 0;

  // Why no wait can succeed any more: the error that has ended the transport or, if a rank has left normally,
  // kPeerLost with that rank as suspect. Waits up to `wait` for either; empty: all ranks are still there. For
  // a rank whose other connections (e.g. PyTorch's) fail, and that looks for the cause.
  virtual std::optional<Error> failure(std::chrono::milliseconds wait) const = 0;

  virtual Traffic traffic() const noexcept = 0;

  // The longest round trip to a rank, as measured when the ranks met; 0 where it is unknown or there is no
  // network between them. What waits for an answer sends ahead by as much as the line holds meanwhile.
  virtual std::chrono::microseconds round_trip() const noexcept { return {}; }

  // The connection to a rank, for its messages, as it was when the ranks met. REQUIRES: 0 <= peer <
  // world_size.
  virtual LineState line_state(int /*peer*/) const { return {}; }

  // What the ranks share besides messages, if they are all processes of one machine; null if they are not. It
  // lasts as long as the transport; one thread uses it at a time.
  virtual SharedAreas* shared_areas() noexcept { return nullptr; }
};

}  // namespace deltawire
