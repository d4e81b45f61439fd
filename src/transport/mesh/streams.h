// Moves bytes over the two streams to each peer, as far as the links take them: the driver's work.
//
// Thread rule: every member is called under the mesh's lock. It is released only while the kernel copies much
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
  // The entries for ppoll() of one rank: a link may have a descriptor for each direction.
  enum PollEntry : std::size_t { kControlIn, kControlOut, kDataIn, kDataOut, kPollEntries };
  static std::size_t entries_for(int world_size) noexcept {
    return kPollEntries * static_cast<std::size_t>(world_size);
  }

  // All of them must outlive it.
  Streams(Peers& peers, Driver& driver, Consensus& consensus, Membership& membership, FailureJudge& judge,
          ControlReader& control) noexcept
      : peers_(peers),
        driver_(driver),
        consensus_(consensus),
        membership_(membership),
        judge_(judge),
        control_(control) {}

  // Begins a message, while the mesh has not failed, and sends what can be sent at once.
  void post_send(Lock& lock, Peer& peer, Operation& message);
  void post_receive(Lock& lock, Peer& peer, Operation& message);
  // Whether a long message is being sent or received.
  bool is_midway() const;
  // Waits until no call in the kernel uses posted memory; a wait may return a failure only afterwards.
  void await_calls(Lock& lock) { calls_in_kernel_.await_none(lock); }
  // Flushes what is posted and says goodbye; may_end() is true afterwards, or from `by` on.
  void leave(Deadline by) noexcept;

  // Called by the driver. `entries`: kPollEntries for each rank.
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
