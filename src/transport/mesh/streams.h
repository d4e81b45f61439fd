// Moves bytes over the two streams to each peer, as far as the links take them: the driver's work.
//
// Thread rule: every member is called under the mesh's lock. It is released only while the kernel copies much
// (ScopedUnlock).
#pragma once

#include <cstddef>
#include <mutex>
#include <span>

#include <poll.h>

#include "transport/mesh/failure_judge.h"
#include "transport/mesh/scoped_unlock.h"

namespace deltawire {

// Reads the other ranks' control messages, and passes each to the part that handles it.
class ControlReader {
 public:
  // All of them must outlive it.
  ControlReader(Peers& peers, Driver& driver, StepSequence& steps, Consensus& consensus,
                WaitAnnouncer& announcer, Membership& membership, FailureJudge& judge) noexcept
      : peers_(peers),
        driver_(driver),
        steps_(steps),
        consensus_(consensus),
        announcer_(announcer),
        membership_(membership),
        judge_(judge) {}

  // Handles the peer's messages. If an allocation fails, no message is lost: it is handled again, as a whole,
  // a little later.
  void read(Peer& peer);
  // Handles all peers' messages, and counts the ballots.
  void read_all();
  // Counts the ballots if all ranks have voted. But this rank may have been frozen just before it sent its
  // vote, or read the last one, and the others may have continued without it. So it sends its vote, reads all
  // messages, and only then counts. A rank that gives up on it after this has its vote.
  void count_ballots();
  // Called by the I/O thread, the only one that is sure to run: once time is up, continues without the ranks
  // that have not sent their rounds or verdicts.
  void give_up_waiting();

 private:
  void on_message(Peer& peer, const ControlMessage& message);
  void on_end(Peer& peer);
  void on_waiting(Peer& peer, const Waiting& waiting) {
    announcer_.on_waiting(peer, waiting);
    if (waiting.rank != WaitGraph::kNobody && !consensus_.failed())
      announcer_.announce_all(MachineClock::now());
  }
  void on_start(Peer& peer, const Start& start) {
    auto mismatch = steps_.on_start(peer, start, consensus_.misses_vote_of(peer.rank));
    if (mismatch) consensus_.fail(std::move(*mismatch), peers_.self());
  }
  void on_goodbye(Peer& peer, const Goodbye& goodbye);
  void on_abort(Peer& peer, const Abort& abort);

  Peers& peers_;
  Driver& driver_;
  StepSequence& steps_;
  Consensus& consensus_;
  WaitAnnouncer& announcer_;
  Membership& membership_;
  FailureJudge& judge_;
};

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
  bool is_midway() const {
    return peers_.find([](const Peer& peer) {
      return peer.wants_send() || peer.receiver.is_midway() || peer.control.has_unsent();
    }) != nullptr;
  }
  // Waits until no call in the kernel uses posted memory; a wait may return a failure only afterwards.
  void await_calls(Lock& lock) { calls_in_kernel_.await_none(lock); }
  // Flushes what is posted and says goodbye; may_end() is true afterwards, or from `by` on.
  void leave(Deadline by) noexcept {
    is_leaving_ = true;
    leave_by_ = by;
  }

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
  // While one thread sends or receives, the driver doesn't poll for the same.
  void poll_again(Peer& peer) noexcept {
    if (std::exchange(peer.is_left_out, false)) driver_.wake_polling();
  }
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
