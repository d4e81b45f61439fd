// The message engine: posted operations of one rank over two byte streams to each peer.
//
// It posts operations, holds the lock and connects its parts. Posting threads do what can be done at once;
// the driver does the rest. One lock guards everything. It is released only while the kernel copies much
// (ScopedUnlock), and no wait returns a failure before such calls have returned: so an operation's memory is
// never touched after wait() has returned.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/mutex.h"
#include "deltawire/transport.h"
#include "transport/mesh/streams.h"
#include "transport/process/fork_guard.h"
#include "transport/process/machine.h"

namespace deltawire {

// What a waiting thread does: it drives the streams or sleeps, asks which ranks are alive, and ends at its
// deadline.
class WaitLoop {
 public:
  using Lock = std::unique_lock<std::mutex>;

  // All of them must outlive it.
  WaitLoop(Waiters& waiters, Driver& driver, Consensus& consensus, WaitAnnouncer& announcer,
           FailureJudge& judge, ControlReader& control, Streams& streams) noexcept
      : waiters_(waiters),
        driver_(driver),
        consensus_(consensus),
        announcer_(announcer),
        judge_(judge),
        control_(control),
        streams_(streams) {}

  // Blocks until the wait has ended or the mesh has failed, perhaps because of this wait.
  void block(Lock& lock, Waiter& waiter);

 private:
  bool is_over(const Waiter& waiter) const noexcept {
    return consensus_.failed() || waiters_.has_ended(waiter);
  }
  void leave(Waiter& waiter) noexcept;
  void wait(Lock& lock, Waiter& waiter);
  void meet_deadline(Waiter& waiter);

  Waiters& waiters_;
  Driver& driver_;
  Consensus& consensus_;
  WaitAnnouncer& announcer_;
  FailureJudge& judge_;
  ControlReader& control_;
  Streams& streams_;
};

class Engine final : public Transport {
 public:
  // `links` by rank; this rank's entry is empty. `host` may be empty. `wake` is an eventfd, empty in a
  // simulation. May throw std::system_error if no thread can be started.
  Engine(const MeshMember& self, std::vector<PeerLinks> links, std::unique_ptr<LinkHost> host,
         GuardedFd wake);
  // Flushes what is posted, for at most about two seconds, and says goodbye.
  ~Engine() override;
  // In a forked child the engine's thread doesn't exist, the lock may be held forever, and what it guards may
  // be half changed: all of it is leaked.
  static void operator delete(Engine* self, std::destroying_delete_t) {
    if (self->in_forked_child()) return;
    self->~Engine();
    ::operator delete(self);  // clang before 19 declares no sized one
  }

  int rank() const noexcept override { return rank_; }
  int world_size() const noexcept override { return world_size_; }
  std::uint32_t epoch() const noexcept override { return epoch_; }
  const RankNames& names() const noexcept override { return names_; }
  Handle post_send(int to, Tag tag, std::span<const Bytes> pieces) override;
  Handle post_recv(int from, Tag tag, MutBytes capacity) override;
  Result<std::uint64_t> wait(Handle handle, Deadline deadline) override;
  bool done(Handle handle) const noexcept override;
  Status wait_any(std::span<const Handle> handles, Deadline deadline) override;
  void wake() noexcept override;
  void set_arrival_timeout(std::chrono::milliseconds timeout) override;
  void set_optional(std::span<const int> ranks) override;
  std::optional<Error> departure_of(int rank) const override;
  void drop(int rank, const Error& error) noexcept override;
  void arrive(std::uint64_t step) override;
  Result<std::span<const Ballot>> vote(const Ballot& ballot, Deadline deadline) override;
  LastCommit last_commit() const override;
  void abort(const Error& error) noexcept override;
  std::optional<Error> failure(std::chrono::milliseconds wait) const override;
  Traffic traffic() const noexcept override;
  std::chrono::microseconds round_trip() const noexcept override {
    return std::ranges::max_element(lines_, {}, &LineState::round_trip)->round_trip;
  }
  LineState line_state(int peer) const override { return lines_[static_cast<std::size_t>(peer)]; }
  SharedAreas* shared_areas() noexcept override;

 private:
  // Each uses only those above it.
  struct Parts {
    Parts(const MeshMember& self, std::vector<PeerLinks> links, GuardedFd wake);

    Peers peers;
    OperationTable operations;
    Waiters waiters;
    Driver driver;
    StepSequence steps;
    Consensus consensus;
    WaitAnnouncer announcer;
    Membership membership;
    FailureJudge judge;
    ControlReader control;
    Streams streams;
    WaitLoop wait_loop;
  };

  bool in_forked_child() const noexcept { return fork_generation() != generation_; }
  bool refuses(int peer);
  bool ends_at_once(Operation& posted) noexcept DELTAWIRE_REQUIRES(mutex_);
  tl::unexpected<Error> failed(MutexLock& lock) DELTAWIRE_REQUIRES(mutex_);

  const int rank_;
  const int world_size_;
  const RankNames names_;
  const std::uint32_t epoch_;
  const std::vector<LineState> lines_;  // by rank, the own one empty
  const std::uint64_t generation_ = fork_generation();
  const std::unique_ptr<LinkHost> host_;  // before the links, which end first
  mutable Mutex mutex_;
  Parts parts_ DELTAWIRE_GUARDED_BY(mutex_);
  MachineThread io_thread_;  // last: it uses all the above
};

}  // namespace deltawire
