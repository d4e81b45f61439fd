// Moves what goes over the two streams to each peer, as far as they take it: what a driver drives.
//
// Thread rule: every member is called under the mesh's lock. It is let go only while the kernel copies much
// (ScopedUnlock).
#pragma once

#include <cstddef>
#include <mutex>
#include <span>

#include <poll.h>

#include "transport/mesh/control_reader.h"
#include "transport/mesh/scoped_unlock.h"

namespace deltawire {

class Streams final : public Driver::Work {
 public:
  using Lock = std::unique_lock<std::mutex>;
  // The entries that ppoll() has for one rank: a link may have a descriptor for each direction.
  enum PollEntry : std::size_t { kControlIn, kControlOut, kDataIn, kDataOut, kPollEntries };
  static std::size_t entries_for(int world_size) noexcept {
    return kPollEntries * static_cast<std::size_t>(world_size);
  }

  // All of them outlive it.
  Streams(Peers& peers, Driver& driver, Consensus& consensus, Membership& membership, FailureJudge& judge,
          ControlReader& control) noexcept
      : peers_(peers),
        driver_(driver),
        consensus_(consensus),
        membership_(membership),
        judge_(judge),
        control_(control) {}

  // Begins a message, and does at once what can be done. REQUIRES: the mesh has not failed.
  void post_send(Lock& lock, Peer& peer, Operation& message);
  void post_receive(Lock& lock, Peer& peer, Operation& message);
  // Whether there is more to move than what small messages leave behind.
  bool is_midway() const;
  // No wait returns a failure before: memory that was posted is its owner's again.
  void await_calls(Lock& lock) { calls_in_kernel_.await_none(lock); }
  // Flushes what is posted, says goodbye, and may_end() then, or at that time.
  void leave(Deadline by) noexcept;

  // Of a driver. `entries`: entries_for() all ranks, kPollEntries for each.
  Deadline prepare(std::span<pollfd> entries) noexcept override;
  void serve(Lock& lock, std::span<const pollfd> entries) noexcept override;
  bool may_end() override;

 private:
  Deadline prepare_peer(Peer& peer, std::span<pollfd> entries);
  Deadline prepare_data(Peer& peer, std::span<pollfd> entries);
  void serve_peer(Lock& lock, Peer& peer, std::span<const pollfd> entries);
  void send(Lock& lock, Peer& peer);
  void receive(Lock& lock, Peer& peer);
  void poll_again(Peer& peer) noexcept;
  void on_data_ended(Peer& peer, int error);
  bool all_flushed();

  Peers& peers_;
  Driver& driver_;
  Consensus& consensus_;
  Membership& membership_;
  FailureJudge& judge_;
  ControlReader& control_;
  CallsInKernel calls_in_kernel_;
  int first_served_ = 0;
  bool is_leaving_ = false;
  bool farewell_said_ = false;
  Deadline leave_by_ = kNever;
};

}  // namespace deltawire
